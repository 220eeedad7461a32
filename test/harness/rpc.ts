// MCP by hand: one JSON-RPC request as one HTTP request, in either era. For tests that look at statuses and headers, send
// what no client would, or send very many.
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http'
import { createParser } from 'eventsource-parser'

export const eras = ['2025-11-25', '2026-07-28'] as const
export type Era = (typeof eras)[number]

export type Reply = { status: number; headers: IncomingMessage['headers']; text: string }
export type Send = {
  method?: string
  path?: string
  headers?: Record<string, string | undefined>
  body?: string | Buffer
}

const agent = new Agent({ keepAlive: true, maxSockets: 64 })

/** One HTTP request on a kept connection. A connection that the server cuts before any answer is an error. */
export function send(
  url: string,
  { method = 'POST', path = '/mcp', headers = {}, body }: Send,
): Promise<Reply> {
  const given = Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(new URL(path, url), { agent, method, headers: Object.fromEntries(given) })
    outgoing.on('error', reject)
    outgoing.on('response', (incoming) => {
      const chunks: Buffer[] = []
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
      incoming.on('error', reject)
      incoming.on('end', () =>
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          text: Buffer.concat(chunks).toString(),
        }),
      )
    })
    outgoing.end(body)
  })
}

export function headersFor(era: Era, token: string | undefined, method: string, name?: string) {
  const modern = era === '2026-07-28'
  return {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': era,
    authorization: token === undefined ? undefined : `Bearer ${token}`,
    'mcp-method': modern ? method : undefined,
    'mcp-name': modern ? name : undefined,
  }
}

const envelope = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientInfo': { name: 'oubliette-test', version: '1.0.0' },
  'io.modelcontextprotocol/clientCapabilities': {},
}

let last = 0
export const bodyFor = (era: Era, method: string, params: Record<string, unknown> = {}) => ({
  jsonrpc: '2.0',
  id: ++last,
  method,
  params: era === '2026-07-28' ? { ...params, _meta: envelope } : params,
})

/** Opens a session of the older era and answers with its id. */
export async function openSession(url: string, token: string): Promise<string> {
  const headers = headersFor('2025-11-25', token, 'initialize')
  const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'raw', version: '1' } }
  const opened = await send(url, {
    headers,
    body: JSON.stringify(bodyFor('2025-11-25', 'initialize', hello)),
  })
  const id = opened.headers['mcp-session-id']
  if (typeof id !== 'string') throw new Error(`no session: ${opened.status} ${opened.text}`)
  const body = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' })
  await send(url, { headers: { ...headers, 'mcp-session-id': id }, body })
  return id
}

export type RpcMessage = {
  result?: Record<string, unknown>
  error?: { code: number; message: string; data?: unknown }
}

/** The answer in a JSON body or in the last event of a stream; undefined when there is none. */
export function messageIn(reply: Reply): RpcMessage | undefined {
  if (!String(reply.headers['content-type']).startsWith('text/event-stream'))
    return reply.text === '' ? undefined : (JSON.parse(reply.text) as RpcMessage)
  const messages: RpcMessage[] = []
  const parser = createParser({ onEvent: ({ data }) => data && messages.push(JSON.parse(data)) })
  parser.feed(reply.text)
  return messages.findLast((message) => 'result' in message || 'error' in message)
}

/** The result; anything else is an error of the test. */
export function resultIn(reply: Reply): Record<string, unknown> {
  const result = messageIn(reply)?.result
  if (reply.status !== 200 || !result) throw new Error(`HTTP ${reply.status}: ${reply.text}`)
  return result
}

export async function rpc(
  url: string,
  token: string | undefined,
  method: string,
  params: Record<string, unknown> = {},
  more: { era?: Era; session?: string } = {},
): Promise<Reply> {
  const era = more.era ?? (more.session ? '2025-11-25' : '2026-07-28')
  const name = typeof params.name === 'string' ? params.name : undefined
  const headers = { ...headersFor(era, token, method, name), 'mcp-session-id': more.session }
  return await send(url, { headers, body: JSON.stringify(bodyFor(era, method, params)) })
}
