import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createLineSplitter, type Line } from './line-splitter.ts'

const cut = (bytes: Buffer, cuts: number[]): Buffer[] => {
  const places = [0, ...cuts.toSorted((a, b) => a - b), bytes.length]
  return places.slice(1).map((end, at) => bytes.subarray(places[at], end))
}

describe('lines', () => {
  it('are the same however the bytes were cut', () => {
    const texts = ['{"a":1}', '', 'grüße 😀', 'x'.repeat(100), '\r']
    const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(''))
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 30 }), (cuts) => {
        const splitter = createLineSplitter(1_000)
        const lines = cut(bytes, cuts).flatMap((chunk) => splitter.push(chunk))
        expect(lines).toEqual(texts.map((text): Line => ({ text })))
        expect(splitter.held_bytes).toBe(0)
      }),
    )
  })

  it('over the limit are counted, not kept, however they were cut; the next one is whole', () => {
    const long = `{"id":7,${'x'.repeat(5_000)},"id":8}`
    const bytes = Buffer.from(`${long}\nnext\n`)
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 10 }), (cuts) => {
        const splitter = createLineSplitter(1_000)
        const [first, second] = cut(bytes, cuts).flatMap((chunk) => splitter.push(chunk))
        expect(first).toEqual({
          too_long_bytes: long.length,
          head: long.slice(0, 256),
          tail: long.slice(-256),
        })
        expect(second).toEqual({ text: 'next' })
      }),
    )
  })

  it('exactly at the limit pass', () => {
    const splitter = createLineSplitter(4)
    expect(splitter.push(Buffer.from('1234\n12345\n'))).toEqual([
      { text: '1234' },
      { too_long_bytes: 5, head: '12345', tail: '12345' },
    ])
  })
})
