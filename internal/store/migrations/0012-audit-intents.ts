// A change has its audit row before it is made. `boot` and `seq` name the row in the server process that wrote it, so that
// an intent, its outcome and a repeated statement all meet the same row, and so that rows left pending by a process that
// ended are found.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table audit add column boot text, add column seq bigint, add column reason text`.execute(db)
  await sql`create unique index audit_call on audit (boot, seq) where boot is not null`.execute(db)
  await sql`create index audit_pending on audit (boot) where outcome = 'pending'`.execute(db)
}
