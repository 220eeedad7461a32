// The hash of the state of an OAuth consent that was begun: the answer of the browser finds its upstream by it, also after a
// restart.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table upstreams add column consent_hash text, add column consent_at timestamptz`.execute(db)
  await sql`create unique index upstreams_consent on upstreams (consent_hash)`.execute(db)
}
