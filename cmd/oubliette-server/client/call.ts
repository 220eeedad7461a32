// Calls a tool of the running server over MCP, as any other caller does. Speaks only what a call needs of the 2026-07-28
// era: one request, its progress, its result. Closing the connection cancels the call.
import { readFileSync } from 'node:fs'
import type { IncomingMessage } from 'node:http'
import { join } from 'node:path'
import type { Place } from '../../../internal/config/place.ts'
import { Fault, type FaultShape, messageOf } from '../../../internal/fault.ts'
import { eventsOf, isEventStream, send, textOf } from './http.ts'

// A call can take hours without an answer (an image build, a long command). After this time, a second request checks that
// the server answers at all.
const probe_ms = 10_000
const era = '2026-07-28'

export type Endpoint = { url: URL; token: string }
type Result = {
  structuredContent?: Record<string, unknown>
  isError?: boolean
  content?: { type: string; text?: string }[]
}
type Message = {
  method?: string
  params?: { message?: string }
  result?: Result
  error?: { message: string }
}
type Options = { signal?: AbortSignal; progress?: (message: string) => void }

export function tokenOf(env: NodeJS.ProcessEnv, home: string): string {
  const given = env.OUBLIETTE_TOKEN || env.OUBLIETTE_ADMIN_TOKEN
  if (given) return given
  const file = join(home, 'admin.token')
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT'
    const why = isMissing ? `${file} does not exist` : messageOf(error)
    throw new Fault('unauthenticated', `no token found: ${why}`, {
      hint: 'set OUBLIETTE_TOKEN, or start the server with "./oubliette up", which creates a token',
      cause: error,
    })
  }
}

const unreachable = (url: URL, error: unknown): Fault =>
  new Fault('unavailable', `cannot connect to the server at ${url.origin}: ${messageOf(error)}`, {
    hint: 'run "./oubliette status" to check the server, or "./oubliette up" to start it',
    cause: error,
  })

const requestBody = (name: string, args: Record<string, unknown>, progress: boolean): string =>
  JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: {
      name,
      arguments: args,
      _meta: {
        'io.modelcontextprotocol/protocolVersion': era,
        'io.modelcontextprotocol/clientInfo': { name: 'oubliette-cli', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
        ...(progress ? { progressToken: 1 } : {}),
      },
    },
  })

async function post(where: Endpoint, name: string, body: string, signal?: AbortSignal) {
  let probe: NodeJS.Timeout | undefined
  try {
    return await send(where.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${where.token}`,
        'mcp-protocol-version': era,
        'mcp-method': 'tools/call',
        'mcp-name': name,
      },
      body,
      ...(signal ? { signal } : {}),
      sent: (destroy) => {
        probe = setTimeout(
          () =>
            send(new URL('/healthz', where.url), { signal: AbortSignal.timeout(probe_ms) }).then(
              (response) => response.resume(),
              () => destroy(new Error(`no answer for ${(2 * probe_ms) / 1000} s`)),
            ),
          probe_ms,
        )
      },
    })
  } finally {
    clearTimeout(probe)
  }
}

/** The server refused the request itself: an error of its HTTP routes, or of the protocol. */
async function refusal(where: Endpoint, response: IncomingMessage): Promise<Error> {
  const text = await textOf(response)
  if (response.statusCode === 401)
    return new Fault('unauthenticated', `the server at ${where.url.origin} rejected the token`, {
      hint: 'check OUBLIETTE_TOKEN and OUBLIETTE_HOME',
    })
  let error: Partial<FaultShape> | undefined
  try {
    error = (JSON.parse(text) as { error?: Partial<FaultShape> }).error
  } catch {
    // Another program answers at this address.
  }
  if (typeof error?.message !== 'string') return new Error(`HTTP status ${response.statusCode}`)
  return new Fault(error.kind ?? 'invalid', error.message, error.hint ? { hint: error.hint } : {})
}

async function messageIn(response: IncomingMessage, progress: Options['progress']): Promise<Message> {
  if (!isEventStream(response)) return JSON.parse(await textOf(response)) as Message
  for await (const data of eventsOf(response)) {
    // A comment or an event without data keeps the connection alive.
    if (data === '') continue
    const message = JSON.parse(data) as Message
    if (message.result || message.error) return message
    if (message.method === 'notifications/progress') progress?.(message.params?.message ?? '')
  }
  throw new Error('the connection was closed before the result')
}

function resultOf({ result, error }: Message): Record<string, unknown> {
  if (!result) throw new Fault('invalid', error?.message ?? 'the call failed')
  const structured = result.structuredContent ?? {}
  if (!result.isError) return structured
  const shape = structured.error as FaultShape | undefined
  const text = result.content?.[0]?.text ?? 'the call failed'
  throw new Fault(shape?.kind ?? 'internal', shape?.message ?? text, shape?.hint ? { hint: shape.hint } : {})
}

export async function callTool(
  where: Endpoint,
  name: string,
  args: Record<string, unknown>,
  { signal, progress }: Options = {},
): Promise<Record<string, unknown>> {
  try {
    const response = await post(where, name, requestBody(name, args, progress !== undefined), signal)
    if (response.statusCode !== 200) throw await refusal(where, response)
    return resultOf(await messageIn(response, progress))
  } catch (error) {
    throw error instanceof Fault ? error : unreachable(where.url, error)
  }
}

export const endpoint = ({ home }: Pick<Place, 'home'>, base: string): Endpoint => ({
  url: new URL('/mcp', base),
  token: tokenOf(process.env, home),
})

type ListedProject = { project_id: string; name: string; container: { status: string } }

/** All pages of `project list`. */
export async function listProjects(where: Endpoint): Promise<ListedProject[]> {
  const projects: ListedProject[] = []
  let cursor: string | undefined
  do {
    const page = await callTool(where, 'project', { action: 'list', ...(cursor ? { cursor } : {}) })
    projects.push(...(page.projects as ListedProject[]))
    cursor = typeof page.next_cursor === 'string' ? page.next_cursor : undefined
  } while (cursor)
  return projects
}
