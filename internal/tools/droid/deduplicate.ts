// A droid's call of one of our tools runs once, although its connection may be lost while it runs and the call be sent again.
// A repeat joins a call that is still running. After a restart of the server, an action with an idempotency_key gets the id of
// the call as its key; an idempotent action is repeated; for other actions a row records that the call began, and the repeat
// fails: the call may have taken effect, and running it twice would be worse than asking the droid to check.
import { Fault } from '../../fault.ts'
import type { Outcome, Tool } from '../tool.ts'

/** How long a call continues after its connection was lost, so that the client can reconnect for its result. */
const patienceMs = 30_000

type Running<T> = { outcome: Promise<T>; joined: number; stop: AbortController; timer?: NodeJS.Timeout }
type Request = { session_id: string; call_id: string | undefined; signal: AbortSignal }

/** Calls that run, by session and call id: a repeat joins, and the last caller that leaves ends the call after a while. */
export function createRunningCalls(wasCancelled: (reason: unknown) => boolean) {
  const running = new Map<string, Running<unknown>>()

  async function join<T>(key: string, call: Running<T>, signal: AbortSignal): Promise<T> {
    clearTimeout(call.timer)
    call.joined += 1
    const { promise: left, reject } = Promise.withResolvers<never>()
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    try {
      return await Promise.race([call.outcome, left])
    } finally {
      signal.removeEventListener('abort', onAbort)
      call.joined -= 1
      if (signal.aborted && wasCancelled(signal.reason)) call.stop.abort(signal.reason)
      else if (call.joined === 0 && running.get(key) === call)
        call.timer = setTimeout(() => call.stop.abort(signal.reason), patienceMs).unref()
    }
  }

  return async <T>(
    { session_id, call_id, signal }: Request,
    run: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> => {
    if (call_id === undefined) return await run(signal)
    const key = `${session_id} ${call_id}`
    const before = running.get(key) as Running<T> | undefined
    if (before) return await join(key, before, signal)
    const stop = new AbortController()
    const call: Running<T> = { outcome: run(stop.signal), joined: 0, stop }
    running.set(key, call)
    // Callers that joined handle the rejection; this only prevents an unhandled one.
    call.outcome
      .catch(() => undefined)
      .finally(() => {
        clearTimeout(call.timer)
        running.delete(key)
      })
    return await join(key, call, signal)
  }
}
export type RunningCalls = ReturnType<typeof createRunningCalls>

export function createDeduplicate(options: {
  tools: Record<string, Tool>
  /** False if the call began before. */
  begin: (session_id: string, call_id: string) => Promise<boolean>
  running: RunningCalls
}) {
  function actionOf(tool: string, args: Record<string, unknown>) {
    const found = Object.hasOwn(options.tools, tool) ? options.tools[tool] : undefined
    const name = found?.unified ? String(args.action) : tool
    return found && Object.hasOwn(found.actions, name) ? found.actions[name] : undefined
  }

  return async (
    request: Request,
    tool: string,
    args: Record<string, unknown>,
    run: (args: Record<string, unknown>, signal: AbortSignal) => Promise<Outcome>,
  ): Promise<Outcome> => {
    const { session_id, call_id, signal } = request
    const action = actionOf(tool, args)
    const repeatable = action?.needs.endsWith(':read') && action.idempotent
    if (call_id === undefined || !action || repeatable) return await run(args, signal)
    const keyed = Object.hasOwn(action.input.shape, 'idempotency_key')
    return await options.running(request, async (until) => {
      if (!keyed && !action.idempotent && !(await options.begin(session_id, call_id)))
        throw new Fault(
          'conflict',
          `${tool} began before the connection was lost, and may have taken effect`,
          {
            hint: 'check whether it did before you call it again',
          },
        )
      return await run(keyed ? { idempotency_key: call_id, ...args } : args, until)
    })
  }
}
