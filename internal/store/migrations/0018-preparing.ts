// Sessions whose image is built or whose container is started, with the step that this is at.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table sessions
      drop constraint sessions_status_check,
      add constraint sessions_status_check check (status in
        ('queued', 'preparing', 'starting', 'running', 'idle', 'waiting', 'completed', 'failed', 'cancelled')),
      add column step text,
      add column percent integer`.execute(db)
}
