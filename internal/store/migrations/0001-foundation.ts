import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table instance (
      singleton boolean primary key default true check (singleton),
      id text not null,
      created_at timestamptz not null default now()
    )`.execute(db)
  await sql`
    create table tokens (
      id text primary key,
      name text not null,
      scope text not null,
      hash bytea not null unique,
      created_by text not null,
      created_at timestamptz not null default now(),
      expires_at timestamptz,
      revoked_at timestamptz,
      last_used_at timestamptz
    )`.execute(db)
  await sql`
    create table projects (
      id uuid primary key,
      name text not null,
      description text not null,
      container_type text not null,
      image text,
      droid text,
      model text,
      remote_url text,
      init_git boolean not null,
      workspace_isolation boolean not null,
      protected_paths jsonb not null,
      network text not null check (network in ('none', 'internal', 'open')),
      limits jsonb not null,
      disabled_tools jsonb not null,
      mcp_servers jsonb not null,
      credential_refs jsonb not null,
      created_by text not null,
      idempotency_key text,
      idempotency_hash text,
      created_at timestamptz not null default now(),
      updated_at timestamptz not null default now(),
      deleting_at timestamptz
    )`.execute(db)
  await sql`create unique index projects_name on projects (lower(name))`.execute(db)
  await sql`create unique index projects_idempotency on projects (created_by, idempotency_key)`.execute(db)
  await sql`create index projects_order on projects (created_at, id)`.execute(db)
  await sql`
    create table containers (
      project_id uuid primary key references projects on delete cascade,
      wanted text not null check (wanted in ('running', 'stopped')),
      status text not null check (status in ('absent', 'running', 'stopped', 'failed')),
      reason text,
      container_id text,
      spec_hash text,
      failures integer not null default 0,
      updated_at timestamptz not null default now()
    )`.execute(db)
  await sql`
    create table workspaces (
      project_id uuid not null references projects on delete cascade,
      id text not null,
      is_default boolean not null,
      created_by text not null,
      created_at timestamptz not null default now(),
      last_used_at timestamptz not null default now(),
      prepared_at timestamptz,
      prepare_error text,
      primary key (project_id, id)
    )`.execute(db)
  await sql`create unique index workspaces_default on workspaces (project_id) where is_default`.execute(db)
  await sql`
    create table audit (
      id bigint generated always as identity primary key,
      at timestamptz not null,
      caller_kind text not null,
      caller_id text not null,
      token_id text,
      session_id text,
      via text not null,
      tool text not null,
      action text not null,
      project_id text,
      outcome text not null,
      milliseconds double precision not null,
      request_id text not null
    )`.execute(db)
  await sql`create index audit_at on audit (at)`.execute(db)
}
