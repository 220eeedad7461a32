// The events of a session as one sequence: the history, then new events, until the session has ended. After a lost connection
// the stream resumes after the last received event, so that a restart of the server causes only a pause.
import type { Connection } from './call.ts'
import { errorOf, OublietteError, shapeIn, unreachable } from './error.ts'
import { attempts, type RetryOptions } from './retry.ts'
import { messagesOf } from './sse.ts'
import { isFinal, type SessionEvent, type SessionInfo } from './types.ts'

export type EventsOptions = {
  /** Yields the events after this index. Default: -1, from the first event. */
  since?: number
  signal?: AbortSignal
}
type Parts = {
  connection: Connection
  retry: RetryOptions
  get(session_id: string, signal?: AbortSignal): Promise<SessionInfo>
}

/** The server sends a heartbeat every 15 s. A connection without any is dead, although neither side closed it. */
const silence_ms = 60_000

/** Yields the events of one connection, until it ends. */
async function* connect(
  { url, token, fetch, onReached }: Connection,
  session_id: string,
  since: { index: number; resumed: boolean },
  signal: AbortSignal | undefined,
): AsyncGenerator<SessionEvent> {
  const where = new URL(`sessions/${encodeURIComponent(session_id)}/events`, url)
  if (!since.resumed) where.searchParams.set('since_index', String(since.index))
  const silence = new AbortController()
  let timer: ReturnType<typeof setTimeout> | undefined
  const restart = () => {
    clearTimeout(timer)
    timer = setTimeout(() => silence.abort(new Error(`no data for ${silence_ms / 1000} s`)), silence_ms)
  }
  try {
    restart()
    const response = await fetch(where, {
      headers: {
        accept: 'text/event-stream',
        authorization: `Bearer ${token}`,
        ...(since.resumed ? { 'last-event-id': String(since.index) } : {}),
      },
      signal: signal ? AbortSignal.any([signal, silence.signal]) : silence.signal,
    })
    if (!response.ok || !response.body) throw await errorOf(response, url)
    onReached()
    for await (const { data } of messagesOf(response.body, restart)) {
      const event = JSON.parse(data) as SessionEvent
      // The server could not go on, and closes the stream.
      const shape = typeof event.index === 'number' ? undefined : shapeIn(event)
      if (shape) throw new OublietteError(shape)
      yield event
    }
  } catch (thrown) {
    if (thrown instanceof OublietteError) throw thrown
    throw unreachable(url, `the events of session ${session_id}`, thrown)
  } finally {
    clearTimeout(timer)
  }
}

/** `known`: the session as it is now, if the caller has just read it. */
export async function* followSession(
  { connection, retry, get }: Parts,
  session_id: string,
  { since = -1, signal }: EventsOptions,
  known?: SessionInfo,
): AsyncGenerator<SessionEvent, void, undefined> {
  signal?.throwIfAborted()
  let info = known ?? (await get(session_id, signal))
  // A message starts a completed or failed session again: a final status is the end only if nothing follows it.
  let ended = isFinal(info.status)
  let last = since
  const tries = attempts(retry, signal)
  for (let resumed = false; ; resumed = true) {
    if (ended && last >= info.last_index) {
      info = await get(session_id, signal)
      ended = isFinal(info.status)
      if (ended && last >= info.last_index) return
    }
    try {
      for await (const event of connect(connection, session_id, { index: last, resumed }, signal)) {
        tries.succeeded()
        if (event.index <= last) continue
        last = event.index
        yield event
        if (event.type === 'status') ended = isFinal(event.status)
        if (!ended || last < info.last_index) continue
        info = await get(session_id, signal)
        ended = isFinal(info.status)
        if (ended && last >= info.last_index) return
      }
      // The server closes streams when it stops, and when the token ends; the next connection finds out.
      await tries.failed(new OublietteError({ kind: 'unavailable', message: 'the event stream ended' }))
    } catch (error) {
      await tries.failed(error)
    }
  }
}
