import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createByteStreams } from './byte-streams.ts'

const streams = createByteStreams()
const server = createServer((socket) => streams.accept('one', socket))
beforeAll(async () => void (await once(server.listen(0, '127.0.0.1'), 'listening')))
afterAll(() => server.close())

const open = (text: string): Socket => {
  const socket = createConnection((server.address() as AddressInfo).port)
  socket.write(text)
  return socket.on('error', () => undefined)
}
const never = () => new AbortController().signal

test('what follows the header belongs to the stream, and a key works once', async () => {
  const { key, arrived } = streams.expect('one', never())
  const header = `GET /terminals/${key} HTTP/1.1\r\n\r\n`
  const socket = open(`${header}first`)
  const stream = await arrived
  socket.end(' second')
  let text = ''
  for await (const chunk of stream.setEncoding('utf8')) text += chunk
  expect(text).toBe('first second')
  await once(open(header).resume(), 'close')
})

test.each([
  ['an unknown key', `GET /terminals/${'0'.repeat(48)} HTTP/1.1\r\n\r\n`],
  ['another path', 'GET /other HTTP/1.1\r\n\r\n'],
  ['no end of the header', 'x'.repeat(1000)],
])('%s ends the connection', async (_, text) => {
  await once(open(text).resume(), 'close')
})

test('a key of another container is unknown', async () => {
  const stop = new AbortController()
  const { key, arrived } = streams.expect('two', stop.signal)
  await once(open(`GET /terminals/${key} HTTP/1.1\r\n\r\n`).resume(), 'close')
  stop.abort(new Error('given up'))
  await expect(arrived).rejects.toThrow('given up')
})
