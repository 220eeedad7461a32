import { PassThrough } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { readText } from './output-reader.ts'

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
