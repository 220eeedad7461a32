import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table session_callers (
      session_id text not null references sessions on delete cascade,
      caller_id text not null,
      declared_by text not null,
      tools jsonb not null,
      updated_at timestamptz not null default now(),
      primary key (session_id, caller_id)
    )`.execute(db)
  await sql`
    create table caller_requests (
      id uuid primary key,
      session_id text not null references sessions on delete cascade,
      caller_id text not null,
      tool text not null,
      arguments jsonb not null,
      call_id text not null,
      status text not null check (status in ('open', 'answered', 'timed_out', 'cancelled')),
      answer jsonb,
      answered_by text,
      created_at timestamptz not null,
      deadline_at timestamptz not null,
      answered_at timestamptz,
      unique (session_id, call_id)
    )`.execute(db)
  await sql`create index caller_requests_open on caller_requests (session_id, created_at) where status = 'open'`.execute(
    db,
  )
  await sql`create index caller_requests_deadline on caller_requests (deadline_at) where status = 'open'`.execute(
    db,
  )
}
