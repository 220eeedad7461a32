// A caller library: offers tools of an application to the droids of sessions and answers their calls until the session ends.
// It survives lost connections and restarts of the server: it resumes the session's events where it stopped, and fetches open
// requests. It uses none of the server's code, only `@modelcontextprotocol/client` and `eventsource-parser`.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { EventSourceParserStream } from 'eventsource-parser/stream'

export type Json = Record<string, unknown>
export type Call = {
  request_id: string
  session_id: string
  /** Aborted when the answer is no longer needed. */
  signal: AbortSignal
  progress(progress: number, more?: { total?: number; message?: string }): Promise<void>
}
export type CallerTool = {
  description?: string
  /** A JSON schema of type object; the server validates arguments against it before the call. */
  inputSchema?: Json
  annotations?: Json
  /** How long a call waits for the answer: 60 s by default, at most 7 days. */
  timeout_seconds?: number
  /** Returns any JSON, or an MCP tool result with `content`. An exception becomes the call's error. */
  run(args: Json, call: Call): unknown
}
/** A tool with typed arguments; its schema has to match the type. */
export const tool = <Args extends object>(
  declared: Omit<CallerTool, 'run'> & { run(args: Args, call: Call): unknown },
): CallerTool => declared as unknown as CallerTool

export type Event = Json & { index: number; type: string; session_id: string; at: string }
export type CallerOptions = {
  /** The server's address, for example http://127.0.0.1:8080 */
  url: string
  token: string
  caller_id: string
  tools: Record<string, CallerTool>
  /** Called with each error that is retried. */
  onError?: (error: unknown) => void
}
type Open = { request_id: string; session_id: string; caller_id: string; tool: string; arguments: Json }

/** The server refused the call, as opposed to being unreachable. */
export class Refused extends Error {
  readonly kind: string
  constructor(error: { kind: string; message: string }) {
    super(error.message)
    this.kind = error.kind
  }
}

const finalStatuses = ['completed', 'failed', 'cancelled']
const pause = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
  })

export function createCaller(options: CallerOptions) {
  const { url, caller_id, tools } = options
  const authorization = `Bearer ${options.token}`
  const onError = options.onError ?? (() => undefined)
  const running = new Map<string, AbortController>()
  let client: Promise<Client> | undefined

  async function open(): Promise<Client> {
    // In the older protocol era, the loss of the server during a call is noticed only by its timeout, a minute later.
    const made = new Client({ name: caller_id, version: '1' }, { versionNegotiation: { mode: 'auto' } })
    const transport = new StreamableHTTPClientTransport(new URL('/mcp', url), {
      requestInit: { headers: { authorization } },
    })
    await made.connect(transport)
    return made
  }

  function connected(): Promise<Client> {
    client ??= open()
    const opening = client
    opening.catch(() => {
      if (client === opening) client = undefined
    })
    return opening
  }

  /** Calls one tool of the server. Throws `Refused` if the server refuses, any other error if it is unreachable. */
  async function call(name: string, args: Json): Promise<Json> {
    const by = await connected()
    try {
      const { structuredContent, isError } = await by.callTool({ name, arguments: args })
      const result = (structuredContent ?? {}) as Json
      if (isError) throw new Refused(result.error as { kind: string; message: string })
      return result
    } catch (error) {
      // The next call opens a new connection: a restarted server does not know the old one.
      if (!(error instanceof Refused)) client = undefined
      throw error
    }
  }

  /** Retries until the server accepts or refuses the call. */
  async function callWithRetry(name: string, args: Json, signal: AbortSignal): Promise<Json> {
    for (let wait = 50; ; wait = Math.min(2000, wait * 2)) {
      try {
        return await call(name, args)
      } catch (error) {
        if (error instanceof Refused && error.kind !== 'unavailable' && error.kind !== 'exhausted')
          throw error
        onError(error)
        await pause(wait, signal)
        signal.throwIfAborted()
      }
    }
  }

  async function handle(open: Open, signal: AbortSignal): Promise<void> {
    const { request_id, session_id } = open
    if (open.caller_id !== caller_id || running.has(request_id)) return
    const stop = new AbortController()
    running.set(request_id, stop)
    const place = { session_id, request_id }
    let answer: Json
    try {
      const declared = Object.hasOwn(tools, open.tool) ? tools[open.tool] : undefined
      if (!declared) throw new Error(`${caller_id} no longer offers the tool ${open.tool}`)
      const progress: Call['progress'] = async (progress, more) =>
        void (await call('caller_tool_response', { ...place, progress: { progress, ...more } }))
      const result = await declared.run(open.arguments, { ...place, signal: stop.signal, progress })
      answer = { result: result === undefined ? null : result }
    } catch (error) {
      answer = { error: { message: error instanceof Error ? error.message : String(error) } }
    }
    try {
      if (!stop.signal.aborted) await callWithRetry('caller_tool_response', { ...place, ...answer }, signal)
    } catch (error) {
      // Timed out, cancelled, or already answered by a request whose reply was lost: nothing is left to do.
      if (!signal.aborted) onError(error)
    }
  }

  function take(event: Event, signal: AbortSignal): void {
    const id = String(event.request_id)
    if (event.type === 'caller_tool_request') void handle(event as unknown as Open, signal)
    if (event.type !== 'caller_tool_result') return
    running.get(id)?.abort()
    running.delete(id)
  }

  /** Yields every event after an index, with reconnects, until the session ends or the signal is aborted. */
  async function* follow(session_id: string, since: number, signal: AbortSignal): AsyncGenerator<Event> {
    let last = since
    for (let wait = 50; !signal.aborted; wait = Math.min(2000, wait * 2)) {
      try {
        const where = new URL(`/sessions/${session_id}/events?since_index=${last}`, url)
        const response = await fetch(where, { headers: { authorization }, signal })
        if (response.status < 500 && !response.ok)
          throw new Refused(((await response.json()) as { error: { kind: string; message: string } }).error)
        const text = (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())
        for await (const { data } of text.pipeThrough(new EventSourceParserStream())) {
          const event = JSON.parse(data) as Event
          last = event.index
          wait = 50
          yield event
          if (event.type === 'status' && finalStatuses.includes(String(event.status))) return
        }
      } catch (error) {
        if (error instanceof Refused) throw error
        if (!signal.aborted) onError(error)
      }
      await pause(wait, signal)
    }
  }

  const declaration = {
    caller_id,
    caller_tools: Object.entries(tools).map(([name, { run: _, ...declared }]) => ({ name, ...declared })),
  }
  const never = new AbortController().signal

  return {
    call,
    /** Starts a session with these tools and returns its id. */
    spawn: async (fields: Json & { project_id: string; prompt: string }): Promise<string> =>
      String((await call('session', { action: 'spawn', ...declaration, ...fields })).session_id),
    /** Sends a message to a session, and offers these tools to it if it does not have them. */
    message: async (session_id: string, message: string, fields: Json = {}): Promise<Json> =>
      await call('session', { action: 'message', session_id, message, ...declaration, ...fields }),
    follow,
    /** Answers open and new requests until the session ends or the signal is aborted; `onEvent` gets each event. */
    async attend(session_id: string, more: { signal?: AbortSignal; onEvent?: (event: Event) => void } = {}) {
      const { signal = never } = more
      const session = await callWithRetry('session', { action: 'get', session_id }, signal)
      for (const open of session.open_requests as Open[]) void handle(open, signal)
      if (finalStatuses.includes(String(session.status))) return
      for await (const event of follow(session_id, Number(session.last_index), signal)) {
        take(event, signal)
        more.onEvent?.(event)
      }
    },
    close: async () => void (await (await client)?.close()),
  }
}
