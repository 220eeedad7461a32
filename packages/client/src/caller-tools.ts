// The tools that an application offers to a droid. Each request is run once per client, also if several streams deliver it,
// and answered once: the server refuses a second answer.
import type { Json } from './call.ts'
import { isTransient, type OublietteError } from './error.ts'
import type { OpenRequest, SessionEvent, SessionInfo } from './types.ts'

export type ToolCall = {
  request_id: string
  session_id: string
  /** Aborted when the answer is no longer needed. */
  signal: AbortSignal
  /** Reports progress to the droid. Never fails: a report that cannot be delivered is dropped. */
  progress(progress: number, more?: { total?: number; message?: string }): Promise<void>
}
export type CallerTool = {
  description?: string
  /** A JSON Schema of type object. The server validates the arguments before the call. Default: any object. */
  inputSchema?: Json
  annotations?: Json
  /** How long a call waits for the answer: 60 s by default, at most 7 days. */
  timeout_seconds?: number
  /** Calls are approved in the inbox of the server before they arrive here. Default: false. */
  requires_approval?: boolean
  /** Returns any JSON, or an MCP tool result with `content`. What it throws becomes the error of the call. */
  run(args: Json, call: ToolCall): unknown
}
export type CallerTools = Record<string, CallerTool>
/** Tools and the id under which the droid sees them: `{caller_id}_{name}`. */
export type Caller = { caller_id: string; tools: CallerTools }

/** A tool with typed arguments. The schema has to match the type. */
export const tool = <Args extends object>(
  declared: Omit<CallerTool, 'run'> & { run(args: Args, call: ToolCall): unknown },
): CallerTool => declared as unknown as CallerTool

/** As `session spawn` and `session message` take it. */
export const declarationOf = ({ caller_id, tools }: Caller) => ({
  caller_id,
  caller_tools: Object.entries(tools).map(([name, { run: _, ...declared }]) => ({ name, ...declared })),
})

type Parts = {
  call(tool: string, args: Json): Promise<Json>
  /** Retries while the server is unreachable. */
  callWithRetry(tool: string, args: Json): Promise<Json>
}
export type AnswerOptions = {
  signal?: AbortSignal | undefined
  /** Called with each error of a tool, and with each answer that the server refused. */
  onError?: ((error: unknown, request: OpenRequest) => void) | undefined
}

/** Ids of requests that are remembered as done. */
const remembered = 100_000

/** Answers on their way. During an outage, only these are repeated. */
const at_once = 32

function createSlots(free: number) {
  const waiting: (() => void)[] = []
  return async function inSlot<T>(work: () => Promise<T>): Promise<T> {
    if (free > 0) free -= 1
    else await new Promise<void>((resolve) => waiting.push(resolve))
    try {
      return await work()
    } finally {
      const next = waiting.shift()
      if (next) next()
      else free += 1
    }
  }
}

export function createAnswering({ call, callWithRetry }: Parts) {
  const running = new Map<string, { stop: AbortController; done: Promise<boolean> }>()
  const done = new Set<string>()
  const inSlot = createSlots(at_once)

  function remember(request_id: string): void {
    done.add(request_id)
    if (done.size > remembered) done.delete(done.values().next().value!)
  }

  /** Resolves with false if the request is still to be answered. */
  async function run(
    request: OpenRequest,
    { caller_id, tools }: Caller,
    stop: AbortController,
    { signal, onError }: AnswerOptions,
  ): Promise<boolean> {
    const { request_id, session_id } = request
    const place = { session_id, request_id }
    const progress: ToolCall['progress'] = async (progress, more) => {
      if (stop.signal.aborted) return
      await call('caller_tool_response', { ...place, progress: { progress, ...more } }).catch(
        (error: unknown) => isTransient(error) || onError?.(error, request),
      )
    }
    let answer: Json
    try {
      const declared = Object.hasOwn(tools, request.tool) ? tools[request.tool] : undefined
      if (!declared) throw new Error(`${caller_id} does not offer the tool ${request.tool}`)
      const result = await declared.run(request.arguments, { ...place, signal: stop.signal, progress })
      answer = { result: result === undefined ? null : result }
    } catch (error) {
      // The tool was interrupted, not refused: the request stays open for the next process that attends.
      if (signal?.aborted) return false
      if (!stop.signal.aborted) onError?.(error, request)
      answer = { error: { message: error instanceof Error ? error.message : String(error) } }
    }
    try {
      await inSlot(async () => {
        if (!done.has(request_id)) await callWithRetry('caller_tool_response', { ...place, ...answer })
      })
    } catch (error) {
      if (isTransient(error) && signal?.aborted) return false
      // `conflict`: answered by a request whose response was lost, or too late.
      if ((error as OublietteError).kind !== 'conflict') onError?.(error, request)
    }
    return true
  }

  async function answer(request: OpenRequest, caller: Caller, options: AnswerOptions): Promise<void> {
    const { request_id } = request
    if (request.caller_id !== caller.caller_id || done.has(request_id)) return
    const before = running.get(request_id)
    // One that was interrupted can leave the request open.
    if (before && (!before.stop.signal.aborted || (await before.done))) return
    if (running.get(request_id) !== before || done.has(request_id) || options.signal?.aborted) return
    const stop = new AbortController()
    const onAbort = () => stop.abort(options.signal?.reason)
    options.signal?.addEventListener('abort', onAbort, { once: true })
    const ended = run(request, caller, stop, options).finally(() =>
      options.signal?.removeEventListener('abort', onAbort),
    )
    running.set(request_id, { stop, done: ended })
    const answered = await ended
    if (answered) remember(request_id)
    if (running.get(request_id)?.stop === stop) running.delete(request_id)
  }

  function close(request_id: string): void {
    remember(request_id)
    running.get(request_id)?.stop.abort(new Error('the call has ended'))
  }

  /** Answers what is open in `info`, and what the events after it ask for. */
  function attend(info: SessionInfo, caller: Caller, options: AnswerOptions) {
    const start = (request: OpenRequest) =>
      void answer(request, caller, options).catch((error: unknown) => options.onError?.(error, request))
    for (const request of info.open_requests) start(request)
    /** Requests of the history. A later event may have the result. */
    const earlier = new Map<string, OpenRequest>()
    return {
      take(event: SessionEvent): void {
        if (event.type === 'caller_tool_request') {
          if (event.index <= info.last_index) earlier.set(event.request_id, event)
          else start(event)
        } else if (event.type === 'caller_tool_result') {
          earlier.delete(event.request_id)
          close(event.request_id)
        }
        if (event.index < info.last_index || earlier.size === 0) return
        for (const request of earlier.values()) start(request)
        earlier.clear()
      },
    }
  }

  return { attend }
}
export type Answering = ReturnType<typeof createAnswering>
