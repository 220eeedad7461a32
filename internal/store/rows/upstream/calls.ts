// Calls of tools of upstream servers. A row is committed before its request leaves the server, so that a call whose outcome
// nobody knows is found after a crash.
import { type Insertable, type Selectable, sql } from 'kysely'
import type { Db } from '../../open.ts'
import type { UpstreamCallsTable } from './tables.ts'

export type UpstreamCallRow = Selectable<UpstreamCallsTable>
export type NewUpstreamCall = Insertable<UpstreamCallsTable>
export type CallEnd = Pick<UpstreamCallRow, 'id' | 'status' | 'result' | 'error'>

export async function upstreamCallBy(
  db: Db,
  session_id: string,
  call_id: string,
): Promise<UpstreamCallRow | undefined> {
  return await db
    .selectFrom('upstream_calls')
    .selectAll()
    .where('session_id', '=', session_id)
    .where('call_id', '=', call_id)
    .executeTakeFirst()
}

/** Writes rows before their requests leave; one that exists (it waited, or is sent again) gets the new state. */
export async function writeCalls(db: Db, rows: NewUpstreamCall[]): Promise<void> {
  await db
    .insertInto('upstream_calls')
    .values(rows)
    .onConflict((conflict) =>
      conflict.column('id').doUpdateSet({
        status: sql`excluded.status`,
        boot: sql`excluded.boot`,
        sent_at: sql`excluded.sent_at`,
        input: sql`excluded.input`,
        ended_at: null,
        result: null,
        error: null,
      }),
    )
    .execute()
}

export async function endCalls(db: Db, ends: CallEnd[]): Promise<void> {
  await sql`
    update upstream_calls set status = ended.status, result = ended.result, error = ended.error, ended_at = now()
    from jsonb_to_recordset(${JSON.stringify(ends)}::jsonb) as ended (id text, status text, result jsonb, error jsonb)
    where upstream_calls.id = ended.id`.execute(db)
}

/** Calls that an earlier server process has sent and whose end it did not record. */
export async function abandonCalls(db: Db, boot: string, error: Record<string, unknown>): Promise<number> {
  const { numUpdatedRows } = await db
    .updateTable('upstream_calls')
    .set({ status: 'outcome_unknown', error: JSON.stringify(error), ended_at: sql`now()` })
    .where('status', '=', 'sent')
    .where('boot', '<>', boot)
    .executeTakeFirst()
  return Number(numUpdatedRows)
}

/** Calls that wait for an answer that their session does not need any more. */
export async function cancelCallsOf(db: Db, session_ids: string[]): Promise<void> {
  if (session_ids.length === 0) return
  await db
    .updateTable('upstream_calls')
    .set({ status: 'cancelled', ended_at: sql`now()` })
    .where('session_id', 'in', session_ids)
    .where('status', '=', 'input_required')
    .execute()
}

/** Results are kept for repeats of a droid's call, the rest for reports. */
export async function expireCalls(db: Db, keep: { results_before: Date; rows_before: Date }): Promise<void> {
  await db.deleteFrom('upstream_calls').where('ended_at', '<', keep.rows_before.toISOString()).execute()
  await db
    .updateTable('upstream_calls')
    .set({ result: null, arguments: '{}' })
    .where('ended_at', '<', keep.results_before.toISOString())
    .where(sql<boolean>`(result is not null or arguments <> '{}'::jsonb)`)
    .execute()
}
