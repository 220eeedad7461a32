// Approvals of every kind, not only permission requests of agents: with what is asked, until when, who may allow it, and
// whether its receipt was used. A question about an upstream has no session, and a global one no project.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table approvals
      alter column session_id drop not null,
      alter column project_id drop not null,
      add column kind text not null default 'permission'
        check (kind in ('permission', 'tool', 'definition', 'elicitation', 'consent')),
      add column server text,
      add column server_id text,
      add column tool text,
      add column arguments jsonb,
      add column arguments_hash text,
      add column detail jsonb not null default '{}',
      add column content jsonb,
      add column scope text check (scope in ('once', 'session', 'always')),
      add column call_id text,
      add column ask_key text,
      add column allowed_at text check (allowed_at in ('off', 'low', 'medium', 'high')),
      add column set_by_admin boolean not null default false,
      add column decided_by_admin boolean not null default false,
      add column expires_at timestamptz,
      add column used_at timestamptz,
      add column used_by text,
      add column revoked_at timestamptz,
      add column revoked_by text,
      drop constraint approvals_status_check,
      add constraint approvals_status_check check (status in ('open', 'allowed', 'denied', 'expired', 'cancelled')),
      add constraint approvals_permission_check check (kind <> 'permission' or session_id is not null)`.execute(
    db,
  )
  await sql`delete from approvals where not exists (select from projects where projects.id = approvals.project_id)`.execute(
    db,
  )
  await sql`
    alter table approvals add constraint approvals_project_fkey
      foreign key (project_id) references projects on delete cascade`.execute(db)
  await sql`create index approvals_open on approvals (session_id, kind) where status = 'open'`.execute(db)
  await sql`create index approvals_open_project on approvals (project_id) where status = 'open'`.execute(db)
  await sql`create index approvals_deadline on approvals (expires_at) where status = 'open'`.execute(db)
  await sql`
    create unique index approvals_call on approvals (session_id, kind, call_id) where call_id is not null`.execute(
    db,
  )
  await sql`
    create unique index approvals_key on approvals (ask_key) where ask_key is not null and status = 'open'`.execute(
    db,
  )
  await sql`
    create index approvals_receipt on approvals (session_id, server_id, tool, arguments_hash)
      where kind = 'tool' and used_at is null`.execute(db)
  await sql`
    create index approvals_remembered on approvals (server_id, tool)
      where scope in ('session', 'always') and revoked_at is null`.execute(db)
}
