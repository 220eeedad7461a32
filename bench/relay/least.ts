// The least that keeps its promises with the parts that the server is made of: the floor, but a request is committed
// before the caller hears of it, its answer is committed before the droid gets it, and the answer comes as a tool call
// through the MCP SDK. One row each, no checks, no events, no audit. Usage: least.ts SOCKET DATABASE_URL
import { createServer as createHttp, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createNet, type Socket } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { createMcpHandler, Server } from '@modelcontextprotocol/server'
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv'
import { Hono } from 'hono'
import pg from 'pg'

const [path, connectionString] = process.argv.slice(2)
const pool = new pg.Pool({ connectionString, max: 20 })
await pool.query('create table calls (id text primary key, arguments jsonb not null, answer jsonb)')
const waiting = new Map<string, { socket: Socket; id: number }>()
let stream: ServerResponse | undefined
let index = 0

async function ask(socket: Socket, id: number, args: unknown): Promise<void> {
  const request_id = String(++index)
  waiting.set(request_id, { socket, id })
  await pool.query({ name: 'ask', text: 'insert into calls values ($1, $2)', values: [request_id, args] })
  const data = { type: 'caller_tool_request', request_id, arguments: args }
  stream?.write(`id: ${index}\nevent: caller_tool_request\ndata: ${JSON.stringify(data)}\n\n`)
}

async function answer(request_id: string, result: unknown): Promise<void> {
  const text = 'update calls set answer = $2 where id = $1 and answer is null'
  await pool.query({ name: 'answer', text, values: [request_id, JSON.stringify(result)] })
  const asked = waiting.get(request_id)
  waiting.delete(request_id)
  asked?.socket.write(`${JSON.stringify({ jsonrpc: '2.0', id: asked.id, result })}\n`)
}

createNet((socket) => {
  let left = ''
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (left + chunk).split('\n')
    left = lines.pop() ?? ''
    for (const line of lines) {
      const { id, method, params } = JSON.parse(line)
      if (method === 'hello') socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, result: {} })}\n`)
      else void ask(socket, id, params.arguments)
    }
  })
}).listen(path)

const validator = new AjvJsonSchemaValidator()
const mcp = createMcpHandler(
  () => {
    const server = new Server(
      { name: 'least', version: '1.0.0' },
      {
        capabilities: { tools: {} },
        jsonSchemaValidator: validator,
      },
    )
    server.setRequestHandler('tools/call', async ({ params }) => {
      const { request_id, result } = params.arguments as { request_id: string; result: unknown }
      await answer(request_id, result)
      return { content: [] }
    })
    return server
  },
  { legacy: 'reject' },
)
const app = new Hono()
app.post('/mcp', async (c) => mcp.fetch(c.req.raw, { parsedBody: await c.req.json() }))
const listener = getRequestListener(app.fetch)
const http = createHttp((incoming, outgoing) => {
  if (incoming.method !== 'GET') return void listener(incoming, outgoing)
  stream = outgoing.writeHead(200, { 'content-type': 'text/event-stream' })
  stream.flushHeaders()
})
http.keepAliveTimeout = 600_000
http.listen(0, '127.0.0.1', () => process.stdout.write(`${JSON.stringify(http.address() as AddressInfo)}\n`))
process.on('disconnect', () => process.exit(0))
