// The event that opens a stream: it carries no message, only an id with which the client can come back after a lost
// connection, and how long to wait before that. Clients of the revisions before 2025-11-25 would try to read an empty
// `message` as JSON, and skip names that they do not know: for them it has a name of its own.
import { type RequestId, SUPPORTED_PROTOCOL_VERSIONS } from '@modelcontextprotocol/server'
import { Fault } from '../../fault.ts'

/** Many clients retry only twice: a restart of the server must fit in between. */
export const retryMs = 3000
/** The first revision in which the SDK opens the streams of requests with such an event. */
const opens = '2025-11-25'
const versionHeader = 'mcp-protocol-version'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

const name = 'event: open\n'

export const openingEvent = (id: string, named: boolean): string =>
  `${named ? name : ''}id: ${id}\nretry: ${retryMs}\ndata: \n\n`

/** The response with `events` in front; `opened` gets a function that writes further events. */
export function withOpening(
  response: Response,
  events: string,
  opened: (say: (events: string) => void) => void,
): Response {
  return transformed(
    response,
    new TransformStream({
      start(out) {
        out.enqueue(encoder.encode(events))
        opened((more) => {
          try {
            out.enqueue(encoder.encode(more))
          } catch {
            // The stream has ended, and its owner is not notified yet.
          }
        })
      },
      transform: pass,
    }),
  )
}

const pass = (chunk: Uint8Array, out: TransformStreamDefaultController<Uint8Array>) => out.enqueue(chunk)

const transformed = (response: Response, by: TransformStream<Uint8Array, Uint8Array>): Response =>
  response.body
    ? new Response(response.body.pipeThrough(by), { status: response.status, headers: response.headers })
    : response

/** Whether the SDK would open a stream for this request without an event. */
export function isUnopened(request: Request): boolean {
  const version = request.headers.get(versionHeader)
  return version === null || (version < opens && SUPPORTED_PROTOCOL_VERSIONS.includes(version))
}

/**
 * Has the SDK open the stream of a request of an older revision too, and gives the event the name that such clients skip. One
 * that is answered before `after_ms` does without: some clients log names that they do not know. The SDK looks at the header
 * only to decide that.
 */
export async function opened(
  request: Request,
  after_ms: number,
  handle: (request: Request) => Promise<Response>,
): Promise<Response> {
  const headers = new Headers(request.headers)
  headers.set(versionHeader, opens)
  const response = await handle(new Request(request.url, { method: 'POST', headers, signal: request.signal }))
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) return response
  let first = true
  let late: NodeJS.Timeout | undefined
  return transformed(
    response,
    new TransformStream({
      transform(chunk, out) {
        clearTimeout(late)
        const is_opening = first && decoder.decode(chunk.subarray(0, 4)) === 'id: '
        first = false
        if (!is_opening) return out.enqueue(chunk)
        late = setTimeout(() => {
          try {
            out.enqueue(encoder.encode(name))
            out.enqueue(chunk)
          } catch {
            // The reader has disconnected.
          }
        }, after_ms).unref()
      },
      flush: () => clearTimeout(late),
    }),
  )
}

/**
 * The answers, as events, to calls that ran when the server was killed: no process will ever answer them, so a client that
 * comes back for them gets an error at once.
 */
export function lostAnswers(requests: RequestId[], event_id?: string): string {
  const data = new Fault('unavailable', 'the server restarted before it answered this call', {
    hint: 'the call may have taken effect: look at what it was to change, or repeat it with its idempotency key',
  }).shape()
  const message = `${data.message}; ${data.hint}`
  const answers = requests.map((id) => ({ jsonrpc: '2.0', id, error: { code: -32000, message, data } }))
  const head = event_id === undefined ? '' : `id: ${event_id}\n`
  return answers.map((answer) => `event: message\n${head}data: ${JSON.stringify(answer)}\n\n`).join('')
}

export const answerLost = (session_id: string, requests: RequestId[], event_id: string): Response =>
  new Response(lostAnswers(requests, event_id), {
    headers: {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'mcp-session-id': session_id,
    },
  })
