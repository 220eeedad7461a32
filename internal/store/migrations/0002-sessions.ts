import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table sessions (
      id text primary key,
      project_id uuid not null references projects on delete cascade,
      workspace_id text not null,
      droid text not null,
      model text,
      reasoning_level text,
      autonomy_level text not null,
      tools_allowed jsonb not null,
      tools_disallowed jsonb not null,
      status text not null check (status in ('starting', 'running', 'idle', 'waiting', 'completed', 'failed', 'cancelled')),
      reason text,
      requires jsonb not null,
      parent_session_id text,
      root_session_id text not null,
      depth integer not null,
      created_by text not null,
      token_id text,
      source text,
      external_id text,
      api_scope text,
      key_hash bytea not null unique,
      key_generation integer not null,
      agent_session_id text,
      next_index bigint not null,
      committed_seq bigint not null default -1,
      turns integer not null default 0,
      final_text text,
      stop_reason text,
      input_tokens bigint not null default 0,
      output_tokens bigint not null default 0,
      cost_usd double precision not null default 0,
      idempotency_key text,
      idempotency_hash text,
      created_at timestamptz not null,
      updated_at timestamptz not null,
      idle_at timestamptz,
      ended_at timestamptz,
      end_requested_at timestamptz
    )`.execute(db)
  await sql`create index sessions_project on sessions (project_id, created_at, id)`.execute(db)
  await sql`create index sessions_tree on sessions (root_session_id)`.execute(db)
  await sql`create index sessions_active on sessions (status) where status not in ('completed', 'failed', 'cancelled')`.execute(
    db,
  )
  await sql`create unique index sessions_idempotency on sessions (project_id, created_by, idempotency_key)`.execute(
    db,
  )
  // position: one order over all sessions, in the order of commits (see store/events.ts).
  await sql`
    create table events (
      session_id text not null references sessions on delete cascade,
      index bigint not null,
      position bigint generated always as identity,
      project_id uuid not null,
      root_session_id text not null,
      type text not null,
      at timestamptz not null,
      data jsonb not null,
      primary key (session_id, index)
    )`.execute(db)
  await sql`create index events_project on events (project_id, position)`.execute(db)
  await sql`create index events_tree on events (root_session_id, position)`.execute(db)
  await sql`
    create table commands (
      id text primary key,
      number bigint generated always as identity,
      session_id text not null references sessions on delete cascade,
      project_id uuid not null,
      kind text not null,
      payload jsonb not null,
      created_at timestamptz not null default now()
    )`.execute(db)
  await sql`create index commands_project on commands (project_id, number)`.execute(db)
  await sql`
    create table approvals (
      id text primary key,
      session_id text not null references sessions on delete cascade,
      project_id uuid not null,
      request_id text not null,
      tool_call jsonb not null,
      options jsonb not null,
      status text not null check (status in ('open', 'allowed', 'denied', 'cancelled')),
      reason text,
      decided_by text,
      created_at timestamptz not null,
      decided_at timestamptz,
      unique (session_id, request_id)
    )`.execute(db)
  await sql`create index approvals_project on approvals (project_id, created_at, id)`.execute(db)
}
