// The events of a session over SSE, from the first one, and the outcome of a turn that they report. After a lost
// connection, the stream resumes after the last received event, so that a restart of the server causes only a pause.
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, messageOf } from '../../../internal/fault.ts'
import { isFinal } from '../../../internal/protocol/session-status.ts'
import { eventsOf, send, textOf } from '../client/http.ts'

const retry_ms = 250

export type RunEvent = { index: number; type: string; [field: string]: unknown }

export const isTurnOver = (event: RunEvent, turn_id: string): boolean =>
  (event.type === 'completion' && event.turn_id === turn_id) ||
  (event.type === 'status' && isFinal(String(event.status)))

/** From the event that ended the turn: a script reports its exit code, an agent its stop reason. */
export function exitCodeOf(event: RunEvent | undefined): number {
  if (event?.type !== 'completion') return 1
  if (typeof event.exit_code === 'number') return event.exit_code
  return event.stop_reason === 'end_turn' ? 0 : 1
}

type Following = {
  signal?: AbortSignal
  /** How long a server may be unreachable. */
  give_up_ms?: number
  /** Called when the connection is lost, and when it is back. */
  onConnection?: (connected: boolean) => void
}

async function open(
  url: URL,
  token: string,
  session_id: string,
  last: number,
  signal: AbortSignal | undefined,
): Promise<AsyncIterable<string>> {
  const response = await send(url, {
    headers: { authorization: `Bearer ${token}`, 'last-event-id': String(last) },
    ...(signal ? { signal } : {}),
  })
  if (response.statusCode === 200) return eventsOf(response)
  const text = await textOf(response)
  // The server is starting or stopping. Other errors are permanent.
  if (response.statusCode === 503) throw new Error(text)
  const { error } = JSON.parse(text) as { error: { message: string } }
  throw new Fault('unavailable', `cannot read the events of session ${session_id}: ${error.message}`)
}

/** Events after `since`; without it, from the first one. Ends when the signal is aborted. */
export async function* readEvents(
  base: string,
  token: string,
  session_id: string,
  since = -1,
  { signal, give_up_ms = 60_000, onConnection = () => undefined }: Following = {},
): AsyncGenerator<RunEvent> {
  const url = new URL(`/sessions/${session_id}/events`, base)
  let last = since
  let received_ms = performance.now()
  let connected = true
  while (!signal?.aborted) {
    try {
      const events = await open(url, token, session_id, last, signal)
      if (!connected) onConnection(true)
      connected = true
      for await (const data of events) {
        const event = JSON.parse(data) as RunEvent
        received_ms = performance.now()
        if (typeof event.index !== 'number') break
        last = event.index
        yield event
      }
      received_ms = performance.now()
    } catch (error) {
      if (signal?.aborted) return
      if (error instanceof Fault) throw error
      if (connected) onConnection(false)
      connected = false
      if (performance.now() - received_ms > give_up_ms)
        throw new Fault(
          'unavailable',
          `server at ${base} unreachable for ${give_up_ms / 1000} s: ${messageOf(error)}`,
          {
            hint: 'run "./oubliette status"; the session may still be running',
          },
        )
    }
    await sleep(retry_ms, undefined, signal ? { signal } : {}).catch(() => undefined)
  }
}
