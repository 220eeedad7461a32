// A workspace tells whether git is set up in it: a clone may go on after the call that made the project was answered.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table workspaces add column state text not null default 'pending'
      check (state in ('pending', 'preparing', 'ready', 'failed'))`.execute(db)
  await sql`
    update workspaces set state = case
      when prepared_at is not null then 'ready' when prepare_error is not null then 'failed' else 'pending' end`.execute(
    db,
  )
}
