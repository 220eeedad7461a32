// Sessions that wait for memory, sessions whose agent is not running, and containers that are paused.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table sessions
      drop constraint sessions_status_check,
      add constraint sessions_status_check check (status in
        ('queued', 'starting', 'running', 'idle', 'waiting', 'completed', 'failed', 'cancelled')),
      add column queued_at timestamptz,
      add column hibernated boolean not null default false,
      add column resumable boolean not null default false`.execute(db)
  await sql`
    alter table containers
      drop constraint containers_status_check,
      add constraint containers_status_check check (status in ('absent', 'running', 'paused', 'stopped', 'failed')),
      add column last_end text,
      add column memory_mb integer`.execute(db)
}
