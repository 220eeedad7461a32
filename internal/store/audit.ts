import { type Insertable, sql } from 'kysely'
import type { Db } from './open.ts'
import { prepared } from './prepared.ts'
import type { AuditTable } from './schema.ts'

export type AuditRow = Insertable<AuditTable>

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
} as const
const names = Object.keys(columns) as (keyof typeof columns)[]

/** Arrays instead of a list of values: one short statement however many rows. */
const insert = prepared<never, unknown[][]>('insert_audit', (db) => {
  const arrays = Object.values(columns).map((type) => sql`${null}::${sql.raw(type)}[]`)
  return sql<never>`insert into audit (${sql.join(names.map((name) => sql.ref(name)))})
    select * from unnest(${sql.join(arrays)})`.compile(db)
})

export async function insertAudit(db: Db, rows: AuditRow[]): Promise<void> {
  await insert(db, ...names.map((name) => rows.map((row) => row[name])))
}

export async function deleteAuditBefore(db: Db, at: Date): Promise<void> {
  await db.deleteFrom('audit').where('at', '<', at.toISOString()).execute()
}
