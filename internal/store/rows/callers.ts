// Tools that callers offer to sessions, and the requests of droids for them.
import { type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { CallerRequestsTable, CallerTool, SessionCallersTable } from '../schema.ts'
import { prepared } from './prepared.ts'
import { logLock, type PlacedEvent } from './session/events.ts'
import type { SessionRow } from './session/sessions.ts'

export type CallerRow = Selectable<SessionCallersTable>
export type RequestRow = Selectable<CallerRequestsTable>
export type RequestEnd = 'answered' | 'timed_out' | 'cancelled'
export type NewRequest = Pick<
  RequestRow,
  'id' | 'session_id' | 'caller_id' | 'tool' | 'arguments' | 'call_id' | 'created_at' | 'deadline_at'
> & { audit: NonNullable<RequestRow['audit']> }
export type Close = { id: string; status: RequestEnd; answer: unknown; answered_by: string | null }

export async function saveCaller(
  db: Db,
  row: { session_id: string; caller_id: string; declared_by: string; tools: CallerTool[] },
): Promise<void> {
  const tools = JSON.stringify(row.tools)
  await db
    .insertInto('session_callers')
    .values({ ...row, tools })
    .onConflict((conflict) =>
      conflict
        .columns(['session_id', 'caller_id'])
        .doUpdateSet({ tools, declared_by: row.declared_by, updated_at: new Date().toISOString() }),
    )
    .execute()
}

export async function callersOf(db: Db, session_id: string): Promise<CallerRow[]> {
  return await db
    .selectFrom('session_callers')
    .selectAll()
    .where('session_id', '=', session_id)
    .orderBy('caller_id')
    .execute()
}

export async function requestById(db: Db, id: string): Promise<RequestRow | undefined> {
  return await db.selectFrom('caller_requests').selectAll().where('id', '=', id).executeTakeFirst()
}

export async function requestByCall(
  db: Db,
  session_id: string,
  call_id: string,
): Promise<RequestRow | undefined> {
  return await db
    .selectFrom('caller_requests')
    .selectAll()
    .where('session_id', '=', session_id)
    .where('call_id', '=', call_id)
    .executeTakeFirst()
}

export async function openRequests(db: Db, session_ids: string[]): Promise<RequestRow[]> {
  if (session_ids.length === 0) return []
  return await db
    .selectFrom('caller_requests')
    .selectAll()
    .where('session_id', 'in', session_ids)
    .where('status', '=', 'open')
    .orderBy('created_at')
    .execute()
}

/** Limit for the arguments in one response: droids choose their size and the number of open requests. */
const shownBytes = 2 * 1024 * 1024

/** The same, with the arguments of only the oldest ones, as many as fit; at least one. */
export async function openRequestsShown(
  db: Db,
  session_ids: string[],
): Promise<(Omit<RequestRow, 'arguments' | 'audit'> & { arguments: RequestRow['arguments'] | null })[]> {
  if (session_ids.length === 0) return []
  const measured = db
    .selectFrom('caller_requests')
    .selectAll()
    .select(
      sql<number>`sum(octet_length(arguments::text)) over (order by created_at, id) - octet_length(arguments::text)`.as(
        'before',
      ),
    )
    .where('session_id', 'in', session_ids)
    .where('status', '=', 'open')
    .as('measured')
  return await db
    .selectFrom(measured)
    .select([
      'id',
      'session_id',
      'caller_id',
      'tool',
      'call_id',
      'status',
      'answer',
      'answered_by',
      'created_at',
      'deadline_at',
      'answered_at',
      sql<RequestRow['arguments'] | null>`case when before < ${shownBytes} then arguments end`.as(
        'arguments',
      ),
    ])
    .orderBy('created_at')
    .execute()
}

/** Those of the given requests that are no longer open. */
export async function closedAmong(db: Db, ids: string[]): Promise<RequestRow[]> {
  if (ids.length === 0) return []
  return await db
    .selectFrom('caller_requests')
    .selectAll()
    .where(sql<boolean>`id = any(${ids}::uuid[])`)
    .where('status', '!=', 'open')
    .execute()
}

/** What subscribers need to know of a changed session. */
export type TouchedSession = Pick<
  SessionRow,
  'id' | 'project_id' | 'root_session_id' | 'created_by' | 'status' | 'stored_bytes'
> &
  Partial<Pick<SessionRow, 'end_requested_at'>>

type Written = TouchedSession & { first_index: number; types: string[]; data: PlacedEvent['data'][] }

const write = prepared<{ written: Written[] }, [number, string, string]>('caller_calls', (db) =>
  sql<{ written: Written[] }>`select caller_calls(${0}, ${''}, ${''}) as written`.compile(db),
)

/** Opens requests that are new and closes those that are open, with their events, in one commit. */
export async function writeCalls(
  db: Db,
  asks: NewRequest[],
  closes: (Close & { session_id: string })[],
): Promise<{ events: PlacedEvent[]; rows: TouchedSession[] }> {
  const at = new Date().toISOString()
  const asked = Map.groupBy(asks, ({ session_id }) => session_id)
  const closed = Map.groupBy(closes, ({ session_id }) => session_id)
  const calls = [...new Set([...asked.keys(), ...closed.keys()])].sort().map((session_id) => ({
    session_id,
    asks: asked.get(session_id) ?? [],
    closes: closed.get(session_id) ?? [],
  }))
  const [answer] = await write(db, logLock, at, JSON.stringify(calls))
  const touched = answer!.written
  const events = touched.flatMap(({ id, project_id, root_session_id, first_index, types, data }) =>
    types.map((type, place) => ({
      session_id: id,
      project_id,
      root_session_id,
      index: first_index + place,
      type,
      at,
      data: data[place]!,
      bytes: JSON.stringify(data[place]).length,
    })),
  )
  const rows = touched.map(({ first_index: _first, types: _types, data: _data, ...row }) => row)
  return { events, rows }
}

export async function overdueRequests(db: Db, limit: number): Promise<RequestRow[]> {
  return await db
    .selectFrom('caller_requests')
    .selectAll()
    .where('status', '=', 'open')
    .where('deadline_at', '<', new Date().toISOString())
    .limit(limit)
    .execute()
}

/** Records the start of a call that must not be repeated; false if it was recorded before. */
export async function beginDroidCall(db: Db, session_id: string, call_id: string): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('droid_calls')
    .values({ session_id, call_id })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows === 1n
}

export type RequestHead = Pick<RequestRow, 'id' | 'caller_id' | 'tool' | 'created_at' | 'deadline_at'>

/** Open requests without their arguments, oldest first. */
export async function openRequestHeads(db: Db, session_id: string, limit: number): Promise<RequestHead[]> {
  return await db
    .selectFrom('caller_requests')
    .select(['id', 'caller_id', 'tool', 'created_at', 'deadline_at'])
    .where('session_id', '=', session_id)
    .where('status', '=', 'open')
    .orderBy('created_at')
    .limit(limit)
    .execute()
}
