import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { onRequestPath, pathBegins } from './request-path.ts'

test.each([
  ['GET /git/remote', true],
  ['POST /git/', true],
  ['GET /gitx', false],
  ['GET /anthropic', false],
  ['GET http://x/git/', false],
  ['GET /gi', undefined],
  ['GET', undefined],
  ['X'.repeat(30), false],
])('%s: %s', (text, matches) => {
  expect(pathBegins(Buffer.from(text), '/git/')).toBe(matches)
})

test('the whole stream is still there, however slowly the first line comes', async () => {
  const text = 'GET /git/remote HTTP/1.1\r\n\r\n'
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = connect((server.address() as { port: number }).port, '127.0.0.1')
  const [socket] = (await once(server, 'connection')) as [Socket]
  let read = ''
  const matched = new Promise<boolean>((done) => {
    onRequestPath(socket, { prefix: '/git/', silence_ms: 5000 }, (matches) => {
      socket.on('data', (chunk: Buffer) => {
        read += chunk
      })
      done(matches)
    })
  })
  for (const letter of text.slice(0, 9)) {
    client.write(letter)
    await new Promise(setImmediate)
  }
  expect(await matched).toBe(true)
  client.end(text.slice(9))
  await once(socket, 'end')
  expect(read).toBe(text)
  server.close()
})
