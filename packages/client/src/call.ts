// One tool call of the 2026-07-28 revision of MCP: one HTTP request, answered with JSON, or with a stream of progress and
// then the result. Closing the response cancels the call.
import {
  errorOf,
  notOubliette,
  OublietteError,
  shapeIn,
  shapeOfRpc,
  unreachable,
  wasConnected,
} from './error.ts'
import { messagesOf } from './sse.ts'

export type Json = Record<string, unknown>
export type Progress = { progress: number; total?: number; message?: string }
export type CallOptions = {
  /** Cancels the call on the server too. */
  signal?: AbortSignal
  onProgress?: (progress: Progress) => void
}
export type Connection = {
  url: string
  token: string
  name: string
  fetch: typeof fetch
  /** Called when a server is there: it responded, also with an error, or closed the connection. */
  onReached(): void
}

const revision = '2026-07-28'
const prefix = 'io.modelcontextprotocol/'
let last_id = 0

type Message = {
  id?: unknown
  method?: string
  params?: unknown
  result?: { structuredContent?: Json; isError?: boolean; content?: { type: string; text?: string }[] }
  error?: Json
}

function requestOf(connection: Connection, tool: string, args: Json, signal: AbortSignal | undefined) {
  const id = ++last_id
  const params = {
    name: tool,
    arguments: args,
    _meta: {
      [`${prefix}protocolVersion`]: revision,
      [`${prefix}clientInfo`]: { name: connection.name, version: '1' },
      [`${prefix}clientCapabilities`]: {},
      // Always: progress keeps the connection of a long call alive.
      progressToken: id,
    },
  }
  const init: RequestInit = {
    method: 'POST',
    headers: {
      authorization: `Bearer ${connection.token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': revision,
      'mcp-method': 'tools/call',
      'mcp-name': tool,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params }),
    ...(signal ? { signal } : {}),
  }
  return { id, init }
}

/** The response to the request. Progress on the way is reported. */
async function messageIn(
  response: Response,
  id: number,
  onProgress: CallOptions['onProgress'],
): Promise<Message | undefined> {
  const type = response.headers.get('content-type') ?? ''
  if (type.startsWith('application/json')) return (await response.json()) as Message
  if (!type.startsWith('text/event-stream') || !response.body)
    throw notOubliette(response.url, `content of type ${type === '' ? 'unknown' : type}`)
  for await (const { data } of messagesOf(response.body)) {
    if (data === '') continue
    const message = JSON.parse(data) as Message
    if (message.id === id) return message
    if (message.method === 'notifications/progress') onProgress?.(message.params as Progress)
  }
  return undefined
}

function resultOf(tool: string, message: Message): Json {
  if (message.error) throw new OublietteError(shapeOfRpc(message.error))
  const { structuredContent = {}, isError, content } = message.result ?? {}
  if (!isError) return structuredContent
  const text = content?.find((part) => part.type === 'text')?.text ?? `${tool} failed`
  throw new OublietteError(shapeIn(structuredContent) ?? { kind: 'protocol', message: text })
}

export async function callTool(
  connection: Connection,
  tool: string,
  args: Json,
  { signal, onProgress }: CallOptions = {},
): Promise<Json> {
  const { id, init } = requestOf(connection, tool, args, signal)
  const what = typeof args.action === 'string' ? `${tool} ${args.action}` : tool
  let message: Message | undefined
  try {
    const response = await connection.fetch(new URL('mcp', connection.url), init)
    if (!response.ok) throw await errorOf(response, connection.url)
    message = await messageIn(response, id, onProgress)
    if (!message) throw new Error('the response ended without a result')
  } catch (thrown) {
    if (signal?.aborted) throw signal.reason
    if (!(thrown instanceof OublietteError)) {
      if (wasConnected(thrown)) connection.onReached()
      throw unreachable(connection.url, what, thrown)
    }
    if (thrown.kind !== 'unreachable' && thrown.kind !== 'protocol') connection.onReached()
    throw thrown
  }
  connection.onReached()
  return resultOf(tool, message)
}
