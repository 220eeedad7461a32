-- The open approvals of a session end with it, in the statement that ends it, whoever writes that.
create or replace function cancel_approvals_of_session() returns trigger language plpgsql as $$
begin
  update approvals set status = 'cancelled', reason = coalesce(new.reason, 'the session is over'), decided_at = now()
  where session_id = new.id and status = 'open';
  return null;
end $$;

create or replace trigger sessions_cancel_approvals after update of status on sessions
  for each row when (new.status in ('completed', 'failed', 'cancelled') and old.status <> new.status)
  execute function cancel_approvals_of_session();

-- A decision that is remembered for the project outlives the session that asked.
create or replace function keep_remembered_approvals() returns trigger language plpgsql as $$
begin
  update approvals set session_id = null
  where session_id = old.id and kind <> 'permission' and scope = 'always' and revoked_at is null;
  return old;
end $$;

create or replace trigger sessions_keep_approvals before delete on sessions
  for each row execute function keep_remembered_approvals();
