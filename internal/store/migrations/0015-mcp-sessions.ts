// MCP sessions of the protocol revisions before 2026-07-28, so that a client can go on with its session id when the server
// was restarted. What clients say is json and not jsonb, which refuses some strings that JSON allows.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table mcp_sessions (
      id uuid primary key,
      caller json not null,
      params json not null,
      subscriptions json not null default '[]',
      log_level text,
      used_at timestamptz not null default now()
    )`.execute(db)
}
