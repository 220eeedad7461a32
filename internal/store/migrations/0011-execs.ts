// Detached commands of containers.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table execs (
      id text primary key,
      project_id uuid not null references projects (id) on delete cascade,
      boot_id text not null,
      command text not null,
      working_dir text,
      status text not null,
      exit_code int,
      reason text,
      stdout_bytes bigint,
      stderr_bytes bigint,
      created_by text not null,
      token_id text,
      session_id text,
      started_at timestamptz not null,
      deadline_at timestamptz not null,
      ended_at timestamptz
    )`.execute(db)
  await sql`create index execs_of_project on execs (project_id, started_at, id)`.execute(db)
  await sql`create index execs_running on execs (project_id, deadline_at) where status = 'running'`.execute(
    db,
  )
}
