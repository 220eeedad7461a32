// The caller of the benchmark, the same in front of the floor and of the server: reads one event stream and posts an
// answer for each request, as MCP calls of the 2026 era. Usage: caller.ts URL TOKEN SESSION SINCE
import { Agent, get, request } from 'node:http'
import { createParser } from 'eventsource-parser'

const [url = '', token = '', session_id = '', since = '-1'] = process.argv.slice(2)
const agent = new Agent({ keepAlive: true, maxSockets: 64 })
const authorization = `Bearer ${token}`
const headers = {
  authorization,
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': '2026-07-28',
  'mcp-method': 'tools/call',
  'mcp-name': 'caller_tool_response',
}
const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
}
let last = 0

function answer(request_id: string, result: unknown): void {
  const params = { name: 'caller_tool_response', arguments: { session_id, request_id, result }, _meta }
  const body = JSON.stringify({ jsonrpc: '2.0', id: ++last, method: 'tools/call', params })
  const sent = request(new URL('/mcp', url), { agent, method: 'POST', headers }, (incoming) => {
    let text = ''
    incoming.setEncoding('utf8').on('data', (chunk) => {
      text += chunk
    })
    incoming.on('end', () => {
      if (incoming.statusCode !== 200 || text.includes('"isError":true'))
        process.stderr.write(`an answer was refused: ${incoming.statusCode} ${text}\n`)
    })
  })
  sent.end(body)
}

get(
  new URL(`/sessions/${session_id}/events?since_index=${since}`, url),
  { headers: { authorization } },
  (incoming) => {
    process.send?.('ready')
    const parser = createParser({
      onEvent({ event, data }) {
        if (event !== 'caller_tool_request') return
        const { request_id, arguments: args } = JSON.parse(data)
        answer(request_id, args)
      },
    })
    incoming.setEncoding('utf8').on('data', parser.feed)
  },
)
process.on('disconnect', () => process.exit(0))
