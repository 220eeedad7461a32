// Requests that the server was working on when it ended without having been told to. One that ends it again and again is
// refused.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table suspects (
      key text primary key,
      project_id text not null,
      what text not null,
      ends int not null,
      last_at timestamptz not null default now()
    )`.execute(db)
}
