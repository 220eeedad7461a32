// What the SDK costs by itself: the same HTTP adapter, the same eras, one tool that answers nothing. `plain` is written
// as the SDK's own documentation does it; `tuned` is the least that can be written with the SDK. Prints its port.
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import {
  createMcpHandler,
  isLegacyRequest,
  McpServer,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv'
import { Hono } from 'hono'
import { z } from 'zod'

const info = { name: 'bare', version: '1.0.0' }
const validator = new AjvJsonSchemaValidator()

function plain() {
  const server = new McpServer(info)
  server.registerTool('empty', { description: 'Nothing.', inputSchema: z.object({}) }, async () => ({
    content: [],
  }))
  return server
}

function tuned() {
  const server = new Server(info, { capabilities: { tools: {} }, jsonSchemaValidator: validator })
  server.setRequestHandler('tools/call', async () => ({ content: [] }))
  return server
}

const make = process.argv[2] === 'tuned' ? tuned : plain
const modern = createMcpHandler(() => make(), { legacy: 'reject' })
const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>()

async function legacy(request: Request, body: unknown): Promise<Response> {
  const known = sessions.get(request.headers.get('mcp-session-id') ?? '')
  if (known) return known.handleRequest(request, { parsedBody: body })
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => void sessions.set(id, transport),
  })
  await make().connect(transport)
  return transport.handleRequest(request, { parsedBody: body })
}

const app = new Hono()
app.post('/mcp', async (c) => {
  const body: unknown = await c.req.json()
  const request = c.req.raw
  return (await isLegacyRequest(request, body))
    ? legacy(request, body)
    : modern.fetch(request, { parsedBody: body })
})
const listener = getRequestListener(app.fetch)
const server = createServer((incoming, outgoing) => void listener(incoming, outgoing)).listen(0, '127.0.0.1')
server.on('listening', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`))
