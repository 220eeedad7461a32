// Waits for a session: for the end of a turn, for new events, for a final status. Reads the log whenever it is notified.

import { isFinal } from '../../protocol/session-status.ts'
import type { SessionRow } from '../../store/rows/session/sessions.ts'
import { type EventLog, type ShownEvent, shownEvent } from '../events/event-log.ts'
import type { Wake } from '../events/wake.ts'
import type { Addressed, Sessions } from './sessions.ts'

type Deps = { sessions: Sessions; events: EventLog; wake: Wake }
type Until = { wait_seconds: number; signal: AbortSignal }

export function createSessionWait({ sessions, events, wake }: Deps) {
  /** Waits until the turn or the session is over, or the time is up. Calls `onEvent` for each event. */
  async function turn(
    { session_id, turn_id, since_index }: Addressed,
    { wait_seconds, signal }: Until,
    onEvent: (event: ShownEvent) => void,
  ): Promise<boolean> {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(wait_seconds * 1000)])
    let begun = false
    for await (const batch of events.followSession(session_id, since_index, limit))
      for (const event of batch.map(shownEvent)) {
        const mine = (event as { turn_id?: unknown }).turn_id === turn_id
        begun ||= mine
        if (begun) onEvent(event)
        if (mine && event.type === 'completion') return true
        if (begun && event.type === 'status' && isFinal(String((event as { status?: unknown }).status)))
          return true
      }
    return false
  }

  /** One page of events; waits for the first event if there is none yet. */
  async function page(
    session_id: string,
    query: { since_index: number; max_events: number; include_children: boolean } & Until,
  ) {
    const row = await sessions.require(session_id)
    const key = query.include_children ? `tree:${row.root_session_id}` : session_id
    const read = await reader(row, query)
    const deadline = performance.now() + query.wait_seconds * 1000
    let found = await read()
    while (found.events.length === 0 && !query.signal.aborted && performance.now() < deadline) {
      const seen = wake.seen(key)
      found = await read()
      if (found.events.length > 0) break
      await wake.news(key, seen, { signal: query.signal, timeout_ms: deadline - performance.now() })
      found = await read()
    }
    const { status } = await sessions.require(session_id)
    return {
      events: found.events.map(({ event }) => event),
      last_index: found.events.at(-1)?.at ?? query.since_index,
      status,
      has_more: found.more,
    }
  }

  /** Reads the session by index; its tree by position, which every event then has. */
  async function reader(
    row: SessionRow,
    query: { since_index: number; max_events: number; include_children: boolean },
  ) {
    const { since_index, max_events } = query
    if (!query.include_children)
      return async () => {
        const { events: found, more } = await events.after(row.id, since_index, max_events)
        return { events: found.map((event) => ({ at: event.index, event: shownEvent(event) })), more }
      }
    const of = { root_session_id: row.root_session_id, session_ids: await sessions.family(row.id) }
    return async () => {
      const { events: found, more } = await events.afterPosition(of, since_index, max_events)
      const placed = found.map((event) => ({
        at: event.position,
        event: { ...shownEvent(event), position: event.position },
      }))
      return { events: placed, more }
    }
  }

  /** Waits until all of them are over, or the time is up. */
  async function ended(session_ids: string[], { wait_seconds, signal }: Until): Promise<boolean> {
    const deadline = performance.now() + wait_seconds * 1000
    for (const id of session_ids)
      for (;;) {
        const seen = wake.seen(id)
        if (isFinal((await sessions.require(id)).status)) break
        const left = deadline - performance.now()
        if (left <= 0 || signal.aborted) return false
        await wake.news(id, seen, { signal, timeout_ms: left })
      }
    return true
  }

  return { turn, page, ended }
}
