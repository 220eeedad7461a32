// The floor: what a round trip costs when nothing is decided and nothing is kept. A line on a Unix socket becomes a
// Server-Sent Event, the body of a POST becomes the answer on the socket. Usage: floor.ts SOCKET
import { createServer as createHttp, type ServerResponse } from 'node:http'
import { createServer as createNet, type Socket } from 'node:net'

const waiting = new Map<string, { socket: Socket; id: number }>()
let stream: ServerResponse | undefined
let index = 0

createNet((socket) => {
  let left = ''
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (left + chunk).split('\n')
    left = lines.pop() ?? ''
    for (const line of lines) {
      const { id, method, params } = JSON.parse(line)
      if (method === 'hello') {
        socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, result: {} })}\n`)
        continue
      }
      const request_id = String(++index)
      waiting.set(request_id, { socket, id })
      const data = { type: 'caller_tool_request', request_id, arguments: params.arguments }
      stream?.write(`id: ${index}\nevent: caller_tool_request\ndata: ${JSON.stringify(data)}\n\n`)
    }
  })
}).listen(process.argv[2])

const http = createHttp((incoming, outgoing) => {
  if (incoming.method === 'GET') {
    stream = outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
    stream.flushHeaders()
    return
  }
  const chunks: Buffer[] = []
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
  incoming.on('end', () => {
    const { id, params } = JSON.parse(Buffer.concat(chunks).toString())
    const { request_id, result } = params.arguments
    const asked = waiting.get(request_id)
    waiting.delete(request_id)
    asked?.socket.write(`${JSON.stringify({ jsonrpc: '2.0', id: asked.id, result })}\n`)
    const body = JSON.stringify({ jsonrpc: '2.0', id, result: { content: [], structuredContent: {} } })
    outgoing.writeHead(200, { 'content-type': 'application/json' }).end(body)
  })
})
// Between its rounds it is quiet for longer than the few seconds after which Node hangs up.
http.keepAliveTimeout = 600_000
http.listen(0, '127.0.0.1', () => {
  const address = http.address()
  process.stdout.write(`${JSON.stringify(address)}\n`)
})
process.on('disconnect', () => process.exit(0))
