import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table projects add column api_scope_grant text`.execute(db)
  await sql`alter table sessions add column key_expires_at timestamptz`.execute(db)
  await sql`alter table tokens add column parent_session_id text, add column parent_token_id text`.execute(db)
  await sql`create index tokens_parent_session on tokens (parent_session_id) where parent_session_id is not null`.execute(
    db,
  )
  await sql`create index tokens_parent_token on tokens (parent_token_id) where parent_token_id is not null`.execute(
    db,
  )
  await sql`alter table schedules add column session_id text`.execute(db)
  await sql`create index schedules_session on schedules (session_id) where session_id is not null`.execute(db)

  // What sessions minted and scheduled before is theirs as well, and ends here if they are over.
  const livingOf = (
    table: string,
  ) => sql`exists (select 1 from sessions where sessions.id = ${sql.ref(table)}.created_by
    and sessions.end_requested_at is null and sessions.status not in ('completed', 'failed', 'cancelled'))`
  await sql`
    update tokens set parent_session_id = tokens.created_by,
      parent_token_id = (select sessions.token_id from sessions where sessions.id = tokens.created_by),
      revoked_at = case when ${livingOf('tokens')} then revoked_at else coalesce(revoked_at, now()) end
    where tokens.created_by like 'gogol\\_%'`.execute(db)
  await sql`
    update schedules set session_id = schedules.created_by,
      enabled = enabled and ${livingOf('schedules')},
      next_run_at = case when ${livingOf('schedules')} then next_run_at end,
      disabled_reason = case when ${livingOf('schedules')} or not enabled then disabled_reason
        else 'its session ' || schedules.created_by || ' is over' end
    where schedules.created_by like 'gogol\\_%' and (schedules.scope = 'admin' or exists (select 1 from sessions
      where sessions.id = schedules.created_by and schedules.scope <> 'project:' || sessions.project_id))`.execute(
    db,
  )

  // In the database, because a session ends in many places: whatever ends it, on whichever server, what it minted ends in
  // the same transaction. The channel is the one of internal/manager/access/tokens.ts.
  await sql`
    create function revoke_below_token() returns trigger language plpgsql as $$
    begin
      update tokens set revoked_at = now() where parent_token_id = old.id and revoked_at is null;
      -- Streams of a token that is revoked are closed. One that goes with its project may be what asked for the delete, and
      -- still waits for the answer: no id, so that servers only forget what they remember.
      perform pg_notify('oubliette_tokens', case tg_op when 'DELETE' then '' else old.id end);
      return null;
    end $$`.execute(db)
  await sql`
    create trigger tokens_revoked after update of revoked_at on tokens for each row
    when (old.revoked_at is null and new.revoked_at is not null) execute function revoke_below_token()`.execute(
    db,
  )
  await sql`
    create trigger tokens_deleted after delete on tokens for each row execute function revoke_below_token()`.execute(
    db,
  )
  await sql`
    create function revoke_below_session() returns trigger language plpgsql as $$
    begin
      update tokens set revoked_at = now() where parent_session_id = old.id and revoked_at is null;
      return null;
    end $$`.execute(db)
  await sql`
    create function disable_schedules_of_session() returns trigger language plpgsql as $$
    begin
      update schedules set enabled = false, next_run_at = null, updated_at = now(),
        disabled_reason = 'its session ' || old.id || ' is over'
      where session_id = old.id and enabled;
      return null;
    end $$`.execute(db)
  await sql`
    create trigger sessions_revoke_minted after update of status, end_requested_at, key_generation on sessions
    for each row when (new.status in ('completed', 'failed', 'cancelled') or new.end_requested_at is not null
      or new.key_generation <> old.key_generation)
    execute function revoke_below_session()`.execute(db)
  await sql`
    create trigger sessions_deleted_revoke_minted after delete on sessions for each row
    execute function revoke_below_session()`.execute(db)
  await sql`
    create trigger sessions_disable_schedules after update of status, end_requested_at on sessions
    for each row when (new.status in ('completed', 'failed', 'cancelled') or new.end_requested_at is not null)
    execute function disable_schedules_of_session()`.execute(db)
  await sql`
    create trigger sessions_deleted_disable_schedules after delete on sessions for each row
    execute function disable_schedules_of_session()`.execute(db)
}
