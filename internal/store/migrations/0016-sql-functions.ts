// The applied content of each file in `../functions` (see `../migrate.ts`).
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table sql_functions (
      file text primary key,
      hash text not null,
      applied_at timestamptz not null default now()
    )`.execute(db)
}
