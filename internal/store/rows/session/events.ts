// The event log. `index` counts within a session without gaps; `position` orders the events of all sessions by commit. Both
// hold because every append acquires one lock first and keeps it until its commit: an append with a lower number has
// committed before one with a higher number, so a reader at the tip never skips an event that is still being written.
import { type OperationNodeSource, sql } from 'kysely'
import type { Db } from '../../open.ts'

export type NewEvent = { type: string; at: string; data: Record<string, unknown> }
export type PlacedEvent = NewEvent & {
  session_id: string
  index: number
  project_id: string
  root_session_id: string
  /** Size of its data as JSON. */
  bytes: number
}
export type StoredEvent = {
  session_id: string
  index: number
  position: number
  type: string
  at: string
  data: Record<string, unknown>
}

/** The lock for `transact`, in every transaction that appends. */
export const logLock = 0x0b1e77e

const insertion = (events: PlacedEvent[], json: string[]) => {
  const column = <K extends keyof PlacedEvent>(name: K) => events.map((event) => event[name])
  return sql`
    insert into events (session_id, index, project_id, root_session_id, type, at, data)
    select * from unnest(
      ${column('session_id')}::text[], ${column('index')}::bigint[], ${column('project_id')}::uuid[],
      ${column('root_session_id')}::text[], ${column('type')}::text[], ${column('at')}::timestamptz[],
      ${json}::jsonb[])`
}

/**
 * Within a transaction that holds `logLock`. The queries of `together` run in the same statement, which saves round trips on
 * the path of every event. `json` is the data of each event, as text.
 */
export async function insertEvents(
  trx: Db,
  events: PlacedEvent[],
  json: string[],
  together: Record<string, OperationNodeSource> = {},
): Promise<void> {
  const parts = Object.entries(together).map(([name, query]) => sql`${sql.id(name)} as (${query})`)
  if (parts.length === 0 && events.length === 0) return
  const inserted = insertion(events, json)
  await (parts.length > 0 ? sql`with ${sql.join(parts)} ${inserted}` : inserted).execute(trx)
}

const select = (db: Db) =>
  db.selectFrom('events').select(['session_id', 'index', 'position', 'type', 'at', 'data'])

/** `more`: further events follow. */
export type EventPage = { events: StoredEvent[]; more: boolean }

/** Per page: an event may be a megabyte, and a page is parsed and written in one turn of the event loop. */
const pageBytes = 2 * 1024 * 1024
const firstRows = 128

type Events = ReturnType<typeof select>

/** The first rows of a query, as many as fit into `bytes`; at least one. The database measures them. */
async function fitting(db: Db, query: Events, rows: number, bytes: number) {
  const chosen = db
    .selectFrom(query.limit(rows).as('chosen'))
    .selectAll()
    .select(sql<number>`octet_length(data::text)::int`.as('bytes'))
    .as('measured')
  const summed = db
    .selectFrom(chosen)
    .selectAll()
    .select(sql<number>`sum(bytes) over (order by position) - bytes`.as('before'))
    .as('summed')
  return await db
    .selectFrom(summed)
    .select(['session_id', 'index', 'position', 'type', 'at', 'data', 'bytes'])
    .where('before', '<', bytes)
    .orderBy('position')
    .execute()
}

/** `after` builds the query for the events after the given one, ordered by `position`. */
async function page(db: Db, after: (last?: StoredEvent) => Events, limit: number): Promise<EventPage> {
  const events: StoredEvent[] = []
  let left = pageBytes
  let rows = Math.min(limit + 1, firstRows)
  for (;;) {
    const found = await fitting(db, after(events.at(-1)), rows, left)
    for (const { bytes, ...event } of found) {
      left -= bytes
      events.push(event)
    }
    if (events.length > limit) return { events: events.slice(0, limit), more: true }
    // Fewer than requested: either there are no more, or they did not fit.
    if (left <= 0) return { events, more: true }
    if (found.length < rows) return { events, more: false }
    rows = limit + 1 - events.length
    // The database measures all requested rows, whether they fit or not.
    if (pageBytes - left > pageBytes / 8) rows = Math.min(rows, firstRows)
  }
}

export async function eventsAfterIndex(
  db: Db,
  session_id: string,
  since_index: number,
  limit: number,
): Promise<EventPage> {
  return await page(
    db,
    (last) =>
      select(db)
        .where('session_id', '=', session_id)
        .where('index', '>', last?.index ?? since_index)
        .orderBy('index'),
    limit,
  )
}

/** Events of a project, or of some sessions of one tree, in the order of commits. */
export async function eventsAfterPosition(
  db: Db,
  of: { project_id: string } | { root_session_id: string; session_ids?: string[] },
  since_position: number,
  limit: number,
): Promise<EventPage> {
  return await page(
    db,
    (last) => {
      const query = select(db)
        .where('position', '>', last?.position ?? since_position)
        .orderBy('position')
      if ('project_id' in of) return query.where('project_id', '=', of.project_id)
      const tree = query.where('root_session_id', '=', of.root_session_id)
      return of.session_ids ? tree.where('session_id', 'in', of.session_ids) : tree
    },
    limit,
  )
}

/** The message that started a turn. */
export async function turnMessage(
  db: Db,
  session_id: string,
  turn_id: string,
): Promise<{ index: number; text: unknown } | undefined> {
  const row = await select(db)
    .where('session_id', '=', session_id)
    .where('type', '=', 'message')
    .where(sql<boolean>`data ->> 'turn_id' = ${turn_id}`)
    .orderBy('index')
    .limit(1)
    .executeTakeFirst()
  return row && { index: row.index, text: row.data.text }
}
