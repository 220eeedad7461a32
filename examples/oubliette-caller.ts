// A caller in a few lines: tools of an application, offered to the droids of sessions, answered for as long as the
// session lives. It survives lost connections and restarts of the server: it follows the session's events from where it
// was, and asks for what is still open. Needs nothing of the server's code, only `@modelcontextprotocol/client`.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { EventSourceParserStream } from 'eventsource-parser/stream'

export type Json = Record<string, unknown>
export type Call = {
  request_id: string
  session_id: string
  /** Aborted when nobody waits for the answer any more. */
  signal: AbortSignal
  progress(progress: number, more?: { total?: number; message?: string }): Promise<void>
}
export type CallerTool = {
  description?: string
  /** A JSON schema of type object; the server checks arguments against it before you are asked. */
  inputSchema?: Json
  annotations?: Json
  /** How long a call waits for your answer: 60 s if left out, up to 7 days. */
  timeout_seconds?: number
  /** The result: any JSON, or an MCP tool result with `content`. What it throws is the call's error. */
  run(args: Json, call: Call): unknown
}
/** The same, with arguments of a known type: the schema is what makes it true. */
export const tool = <Args extends object>(
  declared: Omit<CallerTool, 'run'> & { run(args: Args, call: Call): unknown },
): CallerTool => declared as unknown as CallerTool

export type Event = Json & { index: number; type: string; session_id: string; at: string }
export type CallerOptions = {
  /** Of the server, e.g. http://127.0.0.1:8080 */
  url: string
  token: string
  caller_id: string
  tools: Record<string, CallerTool>
  /** Told of what goes wrong and is tried again. */
  onTrouble?: (error: unknown) => void
}
type Open = { request_id: string; session_id: string; caller_id: string; tool: string; arguments: Json }

/** The server said no, as opposed to not being there. */
export class Refused extends Error {
  readonly kind: string
  constructor(error: { kind: string; message: string }) {
    super(error.message)
    this.kind = error.kind
  }
}

const over = ['completed', 'failed', 'cancelled']
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
  const trouble = options.onTrouble ?? (() => undefined)
  const running = new Map<string, AbortController>()
  let client: Promise<Client> | undefined

  async function open(): Promise<Client> {
    // In the older era a call that is under way when the server dies is noticed only by its time-out, a minute later.
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

  /** One tool of the server. Throws `Refused` if it says no, anything else if it is not there. */
  async function call(name: string, args: Json): Promise<Json> {
    const by = await connected()
    try {
      const { structuredContent, isError } = await by.callTool({ name, arguments: args })
      const said = (structuredContent ?? {}) as Json
      if (isError) throw new Refused(said.error as { kind: string; message: string })
      return said
    } catch (error) {
      // The next call opens a new connection: a server that was restarted does not know the old one.
      if (!(error instanceof Refused)) client = undefined
      throw error
    }
  }

  /** Until the server takes it or refuses it. */
  async function insist(name: string, args: Json, signal: AbortSignal): Promise<Json> {
    for (let wait = 50; ; wait = Math.min(2000, wait * 2)) {
      try {
        return await call(name, args)
      } catch (error) {
        if (error instanceof Refused && error.kind !== 'unavailable' && error.kind !== 'exhausted')
          throw error
        trouble(error)
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
      if (!declared) throw new Error(`${caller_id} does not offer ${open.tool} any more`)
      const progress: Call['progress'] = async (progress, more) =>
        void (await call('caller_tool_response', { ...place, progress: { progress, ...more } }))
      const result = await declared.run(open.arguments, { ...place, signal: stop.signal, progress })
      answer = { result: result === undefined ? null : result }
    } catch (error) {
      answer = { error: { message: error instanceof Error ? error.message : String(error) } }
    }
    try {
      if (!stop.signal.aborted) await insist('caller_tool_response', { ...place, ...answer }, signal)
    } catch (error) {
      // Timed out, cancelled, or answered by the post whose reply was lost: nothing is left to do for it.
      if (!signal.aborted) trouble(error)
    }
  }

  function take(event: Event, signal: AbortSignal): void {
    const id = String(event.request_id)
    if (event.type === 'caller_tool_request') void handle(event as unknown as Open, signal)
    if (event.type !== 'caller_tool_result') return
    running.get(id)?.abort()
    running.delete(id)
  }

  /** Every event after an index, with reconnects, until the session is over or the signal. */
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
          if (event.type === 'status' && over.includes(String(event.status))) return
        }
      } catch (error) {
        if (error instanceof Refused) throw error
        if (!signal.aborted) trouble(error)
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
    /** Starts a session with these tools; answers with its id at once. */
    spawn: async (fields: Json & { project_id: string; prompt: string }): Promise<string> =>
      String((await call('session', { action: 'spawn', ...declaration, ...fields })).session_id),
    /** Speaks to a session, and offers these tools to it if it does not have them. */
    message: async (session_id: string, message: string, fields: Json = {}): Promise<Json> =>
      await call('session', { action: 'message', session_id, message, ...declaration, ...fields }),
    follow,
    /** Answers what is open and what comes, until the session is over or the signal; each event is told. */
    async attend(session_id: string, more: { signal?: AbortSignal; onEvent?: (event: Event) => void } = {}) {
      const { signal = never } = more
      const session = await insist('session', { action: 'get', session_id }, signal)
      for (const open of session.open_requests as Open[]) void handle(open, signal)
      if (over.includes(String(session.status))) return
      for await (const event of follow(session_id, Number(session.last_index), signal)) {
        take(event, signal)
        more.onEvent?.(event)
      }
    },
    close: async () => void (await (await client)?.close()),
  }
}
