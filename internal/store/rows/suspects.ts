// Requests that were being processed when the server crashed or froze (see internal/manager/events/poison.ts).
import { type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { SuspectsTable } from '../schema.ts'

export type SuspectRow = Selectable<SuspectsTable>

export const allSuspects = async (db: Db): Promise<SuspectRow[]> =>
  await db.selectFrom('suspects').selectAll().execute()

export async function addEnds(db: Db, rows: Omit<SuspectRow, 'last_at'>[]): Promise<void> {
  if (rows.length === 0) return
  await db
    .insertInto('suspects')
    .values(rows)
    .onConflict((on) =>
      on.column('key').doUpdateSet({ ends: sql`suspects.ends + excluded.ends`, last_at: sql`now()` }),
    )
    .execute()
}

export async function deleteSuspects(db: Db, keys: string[]): Promise<void> {
  await db.deleteFrom('suspects').where('key', 'in', keys).execute()
}

export async function deleteSuspectsBefore(db: Db, at: Date): Promise<void> {
  await db.deleteFrom('suspects').where('last_at', '<', at.toISOString()).execute()
}
