import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { drained, readText } from './output-reader.ts'

test('chunks that are large enough to wait for their turn are all read', async () => {
  const streams = [new PassThrough(), new PassThrough(), new PassThrough()]
  const texts = streams.map(() => '')
  const readers = streams.map((stream, at) =>
    readText(stream, { room: () => undefined }, (text) => {
      texts[at] += text
    }),
  )
  for (const stream of streams) {
    for (let chunk = 0; chunk < 8; chunk++) stream.write('x'.repeat(32 * 1024))
    stream.end('last')
  }
  await Promise.all(readers.map((reader) => reader.end))
  for (const text of texts) expect(text).toBe(`${'x'.repeat(8 * 32 * 1024)}last`)
})

test('reading waits while the sink has no room, and drained waits with it', async () => {
  const stream = new PassThrough()
  const gate = Promise.withResolvers<void>()
  let full = true
  let text = ''
  const reader = readText(stream, { room: () => (full ? gate.promise : undefined) }, (more) => {
    text += more
  })
  stream.write('first ')
  await new Promise((resolve) => setTimeout(resolve, 20))
  stream.end('second')
  const done = drained([reader], 30)
  await new Promise((resolve) => setTimeout(resolve, 60))
  expect(text).toBe('first ')
  full = false
  gate.resolve()
  await done
  expect(text).toBe('first second')
})
