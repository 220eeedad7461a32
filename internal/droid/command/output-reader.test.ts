import { PassThrough } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { drained, readText } from './output-reader.ts'

const sink = { room: () => undefined }
const large = 64 * 1024

test('what a child prints in large pieces waits for its turn, what another prints in small ones does not', async () => {
  const passed: string[] = []
  const flood = (name: string) => {
    const stream = new PassThrough({ highWaterMark: 4 * large })
    readText(stream, sink, (text) => passed.push(`${name} ${text.length}`))
    return stream
  }
  const streams = Array.from({ length: 50 }, (_, at) => flood(`flood ${at}`))
  const calm = flood('calm')
  for (const stream of streams) {
    stream.write(Buffer.alloc(large, 'x'))
    stream.write(Buffer.alloc(large, 'x'))
  }
  calm.write('a line')
  await setImmediate()
  expect(passed.slice(0, 5)).toContain('calm 6')
  for (let turn = 0; turn < 200 && passed.length < 101; turn++) await setImmediate()
  expect(passed.length).toBe(101)
  // Each has had its first piece before one has its second.
  expect(new Set(passed.filter((it) => it !== 'calm 6').slice(0, 50)).size).toBe(50)
})

test('a piece that waits for its turn is passed on in its place, also at the end', async () => {
  const stream = new PassThrough({ highWaterMark: 16 * large })
  let text = ''
  const reader = readText(stream, sink, (more) => {
    text += more
  })
  const printed = Array.from({ length: 20 }, (_, at) => `${at}`.repeat(at % 2 ? large : 3))
  for (const piece of printed) stream.write(piece)
  stream.end('end')
  await reader.end
  expect(text).toBe(`${printed.join('')}end`)
  const broken = new PassThrough()
  broken.once('data', () => broken.destroy())
  let rest = ''
  const breaking = readText(broken, sink, (more) => {
    rest += more
  })
  broken.write('x'.repeat(large))
  await breaking.end
  expect(rest.length).toBe(large)
})

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
