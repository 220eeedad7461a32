import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  // next_run_at is null while the schedule is disabled.
  await sql`
    create table schedules (
      id text primary key,
      name text not null,
      cron_expr text not null,
      time_zone text not null,
      prompt text not null,
      enabled boolean not null,
      disabled_reason text,
      overlap_behavior text not null check (overlap_behavior in ('skip', 'queue', 'parallel')),
      session_behavior text not null check (session_behavior in ('resume', 'new')),
      catch_up text not null check (catch_up in ('skip', 'once')),
      droid text,
      scope text not null,
      token_id text,
      created_by text not null,
      next_run_at timestamptz,
      created_at timestamptz not null,
      updated_at timestamptz not null
    )`.execute(db)
  await sql`create index schedules_order on schedules (created_at, id)`.execute(db)
  await sql`create index schedules_due on schedules (next_run_at) where next_run_at is not null`.execute(db)
  await sql`create index schedules_token on schedules (token_id) where enabled`.execute(db)
  // session_id is the session that the target keeps; it may be gone, then the next run makes another.
  await sql`
    create table schedule_targets (
      id bigint generated always as identity primary key,
      schedule_id text not null references schedules on delete cascade,
      project_id uuid not null references projects on delete cascade,
      workspace_id text,
      session_id text,
      unique nulls not distinct (schedule_id, project_id, workspace_id)
    )`.execute(db)
  await sql`create index schedule_targets_project on schedule_targets (project_id)`.execute(db)
  await sql`
    create table schedule_runs (
      id text primary key,
      number bigint generated always as identity,
      schedule_id text not null references schedules on delete cascade,
      target_id bigint references schedule_targets on delete set null,
      project_id uuid not null references projects on delete cascade,
      workspace_id text,
      trigger text not null check (trigger in ('cron', 'catch_up', 'manual')),
      due_at timestamptz not null,
      status text not null check (status in ('queued', 'running', 'success', 'failed', 'skipped', 'cancelled')),
      prompt text,
      session_behavior text not null,
      droid text,
      session_id text,
      turn_id text,
      since_index bigint,
      output text,
      error text,
      started_at timestamptz,
      ended_at timestamptz,
      claimed_by text,
      lease_until timestamptz,
      created_at timestamptz not null
    )`.execute(db)
  // Whatever goes wrong above: one target has one run for one time.
  await sql`create unique index schedule_runs_once on schedule_runs (target_id, due_at) where trigger <> 'manual'`.execute(
    db,
  )
  await sql`create index schedule_runs_order on schedule_runs (schedule_id, number)`.execute(db)
  await sql`create index schedule_runs_last on schedule_runs (target_id, number)`.execute(db)
  await sql`create index schedule_runs_project on schedule_runs (project_id)`.execute(db)
  await sql`create index schedule_runs_active on schedule_runs (target_id, number) where status in ('running', 'queued')`.execute(
    db,
  )
  await sql`create index schedule_runs_lease on schedule_runs (lease_until) where status = 'running'`.execute(
    db,
  )
  await sql`create index schedule_runs_ended on schedule_runs (ended_at) where ended_at is not null`.execute(
    db,
  )
  // A schedule without targets goes away, also when its last target went with its project.
  await sql`
    create function schedule_without_targets() returns trigger language plpgsql as $$
    begin
      delete from schedules where id = old.schedule_id
        and not exists (select 1 from schedule_targets where schedule_id = old.schedule_id);
      return null;
    end $$`.execute(db)
  await sql`
    create constraint trigger schedule_without_targets after delete on schedule_targets
    deferrable initially deferred for each row execute function schedule_without_targets()`.execute(db)
  // A message that was given an idempotency key is found again by its turn.
  await sql`create index events_turns on events (session_id, (data ->> 'turn_id')) where type = 'message'`.execute(
    db,
  )
}
