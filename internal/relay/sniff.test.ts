import { once } from 'node:events'
import { type AddressInfo, connect, createConnection, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { onFirstByte, onRequestPath, pathBegins } from './sniff.ts'

async function said(text: string | undefined, silence_ms = 5000) {
  const heard = Promise.withResolvers<{ protocol?: string; text: string }>()
  const server = createServer((socket) => {
    let protocol: string | undefined
    let text = ''
    socket.once('close', () => heard.resolve({ ...(protocol ? { protocol } : {}), text }))
    onFirstByte(socket, silence_ms, (which) => {
      protocol = which
      socket.on('data', (chunk) => {
        text += chunk
      })
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket: Socket = createConnection((server.address() as AddressInfo).port)
  if (text !== undefined) socket.end(text)
  const result = await heard.promise
  socket.destroy()
  server.close()
  return result
}

test('nothing is lost of what tells the protocols apart', async () => {
  expect(await said('GET / HTTP/1.1\r\n\r\n')).toEqual({ protocol: 'http', text: 'GET / HTTP/1.1\r\n\r\n' })
  expect(await said('{"jsonrpc":"2.0"}\n')).toEqual({ protocol: 'frames', text: '{"jsonrpc":"2.0"}\n' })
  expect(await said('nonsense')).toEqual({ protocol: 'frames', text: 'nonsense' })
})

test('who says nothing is not waited for', async () => {
  expect(await said(undefined, 50)).toEqual({ text: '' })
  expect(await said('')).toEqual({ text: '' })
})

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
  const matched = new Promise<string>((done) => {
    onRequestPath(socket, { prefixes: ['/go/', '/git/'], silence_ms: 5000 }, (matching) => {
      socket.on('data', (chunk: Buffer) => {
        read += chunk
      })
      done(matching)
    })
  })
  for (const letter of text.slice(0, 9)) {
    client.write(letter)
    await new Promise(setImmediate)
  }
  expect(await matched).toBe('/git/')
  client.end(text.slice(9))
  await once(socket, 'end')
  expect(read).toBe(text)
  server.close()
})
