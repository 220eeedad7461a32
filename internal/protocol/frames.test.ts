import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createFrameReader } from './frames.ts'

test('frames come out whole however the bytes are cut', () => {
  const texts = fc.array(
    fc.string({ unit: 'grapheme', minLength: 1 }).map((text) => JSON.stringify(text.toWellFormed())),
  )
  fc.assert(
    fc.property(texts, fc.infiniteStream(fc.integer({ min: 1, max: 7 })), (frames, sizes) => {
      const reader = createFrameReader()
      const bytes = Buffer.from(frames.map((frame) => `${frame}\n`).join(''))
      const seen: string[] = []
      for (let at = 0; at < bytes.length; ) {
        const size = sizes.next().value
        seen.push(...reader.push(bytes.subarray(at, at + size)))
        at += size
      }
      expect(seen).toEqual(frames)
      expect(reader.partial_bytes).toBe(0)
    }),
  )
})

test('a frame that is too long is refused before it ends', () => {
  const reader = createFrameReader(10)
  expect(reader.push(Buffer.from('0123456789\n0123'))).toEqual(['0123456789'])
  expect(() => reader.push(Buffer.from('4567890'))).toThrow('longer than 10 bytes')
})

test('an empty frame is refused, and bytes that come one by one are kept as one', () => {
  expect(() => createFrameReader().push(Buffer.from('{}\n\n'))).toThrow('empty')
  const reader = createFrameReader()
  const text = JSON.stringify('ä'.repeat(5000))
  for (const byte of Buffer.from(text)) expect(reader.push(Buffer.of(byte))).toEqual([])
  expect(reader.push(Buffer.from('\n'))).toEqual([text])
})

test('bytes that are no UTF-8 are refused', () => {
  expect(() => createFrameReader().push(Buffer.from([0x22, 0xff, 0x22, 0x0a]))).toThrow('not UTF-8')
})
