// Reads the event log of all sessions: pages and tails, from any point of the history. Push is a tail of the log, so push
// and poll cannot disagree. `log-writer.ts` and `call-writer.ts` write it.
import { setTimeout as pause } from 'node:timers/promises'
import { isOutage } from '../../store/errors.ts'
import type { Store } from '../../store/open.ts'
import type { TouchedSession } from '../../store/rows/callers.ts'
import {
  type EventPage,
  eventsAfterIndex,
  eventsAfterPosition,
  type PlacedEvent,
  type StoredEvent,
} from '../../store/rows/session/events.ts'
import { createCallWriter } from './call-writer.ts'
import { type Committed, createLogWriter } from './log-writer.ts'
import type { Poison } from './poison.ts'
import type { Wake } from './wake.ts'

/** As callers see it: the data of an event is merged into its own fields, and never overrides them. */
export const shownEvent = ({ session_id, index, type, at, data }: Omit<StoredEvent, 'position'>) => {
  const own = { index, type, session_id, at }
  return { ...own, ...data, ...own }
}
export type ShownEvent = ReturnType<typeof shownEvent>
export type IndexedEvent = Omit<StoredEvent, 'position'>
export type IndexedPage = { events: IndexedEvent[]; more: boolean }
export type Position = { project_id: string } | { root_session_id: string; session_ids?: string[] }

/** How often a stream retries during an outage of the database. */
const outage_ms = 1_000

/** Limits of the cache: the newest events of recently written sessions, so that readers at the tip need no query. */
const tipEvents = 512
const tipBytes = 1024 * 1024
const allTipBytes = 64 * 1024 * 1024

function createTips() {
  const tips = new Map<string, PlacedEvent[]>()
  const sizes = new Map<string, number>()
  let all = 0

  function drop(session_id: string): void {
    all -= sizes.get(session_id) ?? 0
    tips.delete(session_id)
    sizes.delete(session_id)
  }

  /** The newest events, up to the limit for one session. */
  function newest(events: PlacedEvent[]): { kept: PlacedEvent[]; bytes: number } {
    let bytes = 0
    let first = events.length
    while (first > 0 && events.length - first < tipEvents && bytes + events[first - 1]!.bytes <= tipBytes)
      bytes += events[--first]!.bytes
    return { kept: events.slice(first), bytes }
  }

  return {
    drop,
    /** Whether this is the last cached event. */
    endsAt: (session_id: string, index: number) => tips.get(session_id)?.at(-1)?.index === index,
    add(events: PlacedEvent[]) {
      for (const [session_id, added] of Map.groupBy(events, (event) => event.session_id)) {
        const before = tips.get(session_id) ?? []
        const joined = before.at(-1)?.index === added[0]!.index - 1 ? [...before, ...added] : added
        const { kept, bytes } = newest(joined)
        drop(session_id)
        if (kept.length === 0) continue
        tips.set(session_id, kept)
        sizes.set(session_id, bytes)
        all += bytes
        while (all > allTipBytes) drop(tips.keys().next().value!)
      }
    },
    /** Undefined if the next event is older than the cache. */
    after(session_id: string, since_index: number, limit: number): IndexedPage | undefined {
      const tip = tips.get(session_id)
      const first = tip?.[0]
      if (!tip || !first || first.index > since_index + 1 || tip.at(-1)!.index <= since_index)
        return undefined
      const from = since_index + 1 - first.index
      return { events: tip.slice(from, from + limit), more: tip.length > from + limit }
    },
  }
}

async function unlessOutage<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read
  } catch (error) {
    if (isOutage(error)) return undefined
    throw error
  }
}

type Listener = (committed: Committed) => void

export function createEventLog(deps: {
  store: Store
  wake: Wake
  poison: Poison
  session_mb: number
  listeners: Listener[]
}) {
  const { store, wake } = deps
  const tips = createTips()
  const reads = new Map<string, Promise<unknown>>()
  const keysOf = (row: TouchedSession) => [row.id, `tree:${row.root_session_id}`, `project:${row.project_id}`]

  const writer = createLogWriter({
    store,
    poison: deps.poison,
    session_mb: deps.session_mb,
    onCommit: announce,
    onDoubt: forgetTips,
  })
  const calls = createCallWriter({ store, onCommit: announce, onDoubt: forgetTips })

  /** Later events of these sessions may be in the database only. */
  function forgetTips(session_ids: string[]): void {
    for (const session_id of session_ids) tips.drop(session_id)
  }

  function announce(committed: Committed): void {
    tips.add(committed.events)
    tell(committed)
  }

  function tell(committed: Committed): void {
    wake.tell(committed.rows.flatMap(keysOf))
    for (const listener of deps.listeners) listener(committed)
  }

  /** Subscribers at the same position share one query. */
  function shared<T>(key: string, read: () => Promise<T>): Promise<T> {
    const under = reads.get(key) as Promise<T> | undefined
    if (under) return under
    const mine = read().finally(() => reads.delete(key))
    reads.set(key, mine)
    return mine
  }

  const after = async (session_id: string, since_index: number, limit: number): Promise<IndexedPage> =>
    tips.after(session_id, since_index, limit) ??
    (await shared(`${session_id}:${since_index}:${limit}`, () =>
      eventsAfterIndex(store.db, session_id, since_index, limit),
    ))

  const afterPosition = (of: Position, since: number, limit: number): Promise<EventPage> =>
    shared(`${JSON.stringify(of)}:${since}:${limit}`, () => eventsAfterPosition(store.db, of, since, limit))

  /** The history from a position on, then new events as they are committed, in batches, until the signal is aborted. */
  async function* follow<E>(
    key: string,
    since: number,
    read: (since: number, woken: boolean) => Promise<E[]>,
    at: (event: E) => number,
    signal: AbortSignal,
  ): AsyncGenerator<E[]> {
    let last = since
    let woken = true
    while (!signal.aborted) {
      const seen = wake.seen(key)
      const events = await unlessOutage(read(last, woken))
      if (signal.aborted) return
      if (!events) {
        // The stream stays open during an outage of the database: its reader would reconnect at the same position.
        await pause(outage_ms, undefined, { signal }).catch(() => undefined)
        continue
      }
      if (events.length > 0) {
        yield events
        last = at(events.at(-1)!)
        continue
      }
      await wake.news(key, seen, { signal, timeout_ms: 30_000 })
      woken = wake.seen(key) !== seen
    }
  }

  return {
    receive: writer.receive,
    waiting: writer.waiting,
    ask: calls.ask,
    closeRequest: calls.close,
    /** For events written in a separate transaction: call this after the commit. */
    announce,
    /** And this one if the transaction failed: it may be committed nevertheless. */
    doubt: forgetTips,
    after,
    afterPosition,
    followSession: (session_id: string, since_index: number, signal: AbortSignal) =>
      follow(
        session_id,
        since_index,
        // At the tip the database has nothing new, unless the reader was not woken by this server.
        async (since, woken) =>
          woken && tips.endsAt(session_id, since) ? [] : (await after(session_id, since, 500)).events,
        (event) => event.index,
        signal,
      ),
    followProject: (project_id: string, since_position: number, signal: AbortSignal) =>
      follow(
        `project:${project_id}`,
        since_position,
        async (since) => (await afterPosition({ project_id }, since, 500)).events,
        (event) => event.position,
        signal,
      ),
    async close() {
      await writer.close()
      await calls.settled()
    },
  }
}
export type EventLog = ReturnType<typeof createEventLog>
