import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { onFirstByte } from './first-byte.ts'

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
