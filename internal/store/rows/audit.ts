import { type Insertable, type RawBuilder, type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { AuditTable } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'
import { prepared } from './prepared.ts'

export type AuditRow = Omit<Insertable<AuditTable>, 'reason'>

/** The outcome of a change in progress, or of one whose server ended before it was recorded. */
export const pending = 'pending'
const ended = 'the server ended before the outcome was recorded'

const columns = {
  at: 'timestamptz',
  caller_kind: 'text',
  caller_id: 'text',
  token_id: 'text',
  session_id: 'text',
  via: 'text',
  tool: 'text',
  action: 'text',
  project_id: 'text',
  outcome: 'text',
  milliseconds: 'float8',
  request_id: 'text',
  boot: 'text',
  seq: 'bigint',
} as const
const names = Object.keys(columns) as (keyof typeof columns)[]

/** Arrays instead of a list of values: the same short statement for any number of rows. */
const insertion = (name: string, conflict: RawBuilder<unknown>) =>
  prepared<never, unknown[][]>(name, (db) => {
    const arrays = Object.values(columns).map((type) => sql`${null}::${sql.raw(type)}[]`)
    return sql<never>`insert into audit (${sql.join(names.map((column) => sql.ref(column)))})
      select * from unnest(${sql.join(arrays)})
      on conflict (boot, seq) where boot is not null ${conflict}`.compile(db)
  })

/** A statement that timed out in this process may still be executed, even after the one that settles the row. */
const insertOnce = insertion('insert_audit_intents', sql`do nothing`)
const upsert = insertion(
  'settle_audit',
  sql`do update set outcome = excluded.outcome, milliseconds = excluded.milliseconds, reason = null
    where audit.outcome in ('pending', 'unknown')`,
)

const arraysOf = (rows: AuditRow[]) => names.map((name) => rows.map((row) => row[name] ?? null))

export async function insertIntents(db: Db, rows: AuditRow[]): Promise<void> {
  await insertOnce(db, ...arraysOf(rows))
}

/** Settles the rows that have an intent and inserts the others. A repeat changes nothing. */
export async function writeOutcomes(db: Db, rows: AuditRow[]): Promise<void> {
  await upsert(db, ...arraysOf(rows))
}

/** Rows that other server processes left pending. The caller holds the lock of the sole server, so they have ended. */
export async function settleAbandoned(db: Db, own_boot: string): Promise<number> {
  const { numUpdatedRows } = await db
    .updateTable('audit')
    .set({ outcome: 'unknown', reason: ended })
    .where(sql<boolean>`outcome = 'pending'`)
    .where('boot', '!=', own_boot)
    .executeTakeFirst()
  return Number(numUpdatedRows)
}

/** Per statement, which has a deadline; the next sweep deletes more. */
const deletedAtOnce = 20_000

export async function deleteAuditBefore(db: Db, at: Date): Promise<void> {
  const old = db
    .selectFrom('audit')
    .select('id')
    .where('at', '<', at.toISOString())
    .orderBy('at')
    .limit(deletedAtOnce)
  await db.deleteFrom('audit').where('id', 'in', old).execute()
}

export type AuditFilter = PageRequest & {
  actor?: string
  tool?: string
  action?: string
  project_id?: string
  outcome?: string
  since?: string
}

/** Newest first. `actor` is a token, a session or the id of a caller. */
export async function listAudit(db: Db, filter: AuditFilter): Promise<Page<Selectable<AuditTable>>> {
  const from = readCursor(filter.cursor)
  let query = db
    .selectFrom('audit')
    .selectAll()
    .orderBy('at', 'desc')
    .orderBy('id', 'desc')
    .limit(filter.limit + 1)
  const { actor } = filter
  if (actor !== undefined)
    query = query.where((is) =>
      is.or([is('caller_id', '=', actor), is('token_id', '=', actor), is('session_id', '=', actor)]),
    )
  for (const column of ['tool', 'action', 'project_id', 'outcome'] as const) {
    const wanted = filter[column]
    if (wanted !== undefined) query = query.where(column, '=', wanted)
  }
  if (filter.since !== undefined) query = query.where('at', '>=', filter.since)
  if (from) query = query.where(sql<boolean>`(at, id) < (${from.at}::timestamptz, ${from.id}::bigint)`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.at, id: String(row.id) }))
}
