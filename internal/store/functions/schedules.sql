-- A schedule without targets is deleted, also when its last target is deleted with its project.
create or replace function schedule_without_targets() returns trigger language plpgsql as $$
begin
  delete from schedules where id = old.schedule_id
    and not exists (select 1 from schedule_targets where schedule_id = old.schedule_id);
  return null;
end $$;

-- PostgreSQL cannot replace a constraint trigger.
drop trigger if exists schedule_without_targets on schedule_targets;
create constraint trigger schedule_without_targets after delete on schedule_targets
  deferrable initially deferred for each row execute function schedule_without_targets();

-- A schedule whose scope reaches beyond the project of the session that created it is disabled when that session ends.
create or replace function disable_schedules_of_session() returns trigger language plpgsql as $$
begin
  update schedules set enabled = false, next_run_at = null, updated_at = now(),
    disabled_reason = 'session ' || old.id || ' has ended'
  where session_id = old.id and enabled;
  return null;
end $$;

create or replace trigger sessions_disable_schedules after update of status, end_requested_at on sessions
  for each row when (new.status in ('completed', 'failed', 'cancelled') or new.end_requested_at is not null)
  execute function disable_schedules_of_session();
create or replace trigger sessions_deleted_disable_schedules after delete on sessions
  for each row execute function disable_schedules_of_session();
