// Upstream MCP servers, the tools that they offer with the pins of their definitions, and the calls of these tools.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table upstreams (
      id text primary key,
      project_id uuid references projects (id) on delete cascade,
      name text not null,
      source text not null,
      trusted boolean not null,
      enabled boolean not null,
      settings jsonb not null,
      secrets text,
      oauth text,
      created_by text not null,
      created_at timestamptz not null default now(),
      updated_at timestamptz not null default now(),
      identity jsonb,
      instructions text,
      capabilities jsonb,
      resources jsonb not null default '[]',
      resource_templates jsonb not null default '[]',
      prompts jsonb not null default '[]',
      discovered_at timestamptz,
      fresh_until timestamptz,
      last_status jsonb
    )`.execute(db)
  await sql`
    create unique index upstreams_name on upstreams
      (coalesce(project_id, '00000000-0000-0000-0000-000000000000'::uuid), name)`.execute(db)
  await sql`create index upstreams_of_project on upstreams (project_id)`.execute(db)
  await sql`
    create table upstream_tools (
      upstream_id text not null references upstreams (id) on delete cascade,
      name text not null,
      visible_name text not null,
      definition jsonb not null,
      pin text not null,
      status text not null,
      present boolean not null,
      approved_definition jsonb,
      approved_pin text,
      approved_by text,
      approved_at timestamptz,
      resembles text,
      approval_id text,
      hidden_characters jsonb not null default '[]',
      first_seen_at timestamptz not null default now(),
      changed_at timestamptz not null default now(),
      primary key (upstream_id, name)
    )`.execute(db)
  await sql`
    create table upstream_calls (
      id text primary key,
      upstream_id text not null references upstreams (id) on delete cascade,
      project_id uuid references projects (id) on delete cascade,
      session_id text,
      call_id text,
      caller_id text not null,
      tool text not null,
      arguments jsonb not null,
      arguments_hash text not null,
      repeatable boolean not null,
      status text not null,
      input jsonb,
      result jsonb,
      error jsonb,
      boot text not null,
      created_at timestamptz not null,
      sent_at timestamptz,
      ended_at timestamptz
    )`.execute(db)
  await sql`
    create unique index upstream_calls_repeat on upstream_calls (session_id, call_id) where call_id is not null`.execute(
    db,
  )
  await sql`
    create index upstream_calls_open on upstream_calls (status)
      where status in ('sent', 'input_required')`.execute(db)
  await sql`create index upstream_calls_ended on upstream_calls (ended_at) where ended_at is not null`.execute(
    db,
  )
}
