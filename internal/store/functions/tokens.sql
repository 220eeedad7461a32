-- Tokens are revoked together with the token or the session through which they were created. This is in the database
-- because sessions end in many places: the tokens are revoked in the transaction that ends the session.

-- The channel is the one of internal/manager/access/tokens.ts.
create or replace function revoke_below_token() returns trigger language plpgsql as $$
begin
  update tokens set revoked_at = now() where parent_token_id = old.id and revoked_at is null;
  -- Servers close the streams of a revoked token. A token that is deleted with its project may belong to the caller
  -- that is deleting the project and waits for the response: the empty id only makes servers clear their caches.
  perform pg_notify('oubliette_tokens', case tg_op when 'DELETE' then '' else old.id end);
  return null;
end $$;

create or replace trigger tokens_revoked after update of revoked_at on tokens
  for each row when (old.revoked_at is null and new.revoked_at is not null) execute function revoke_below_token();
create or replace trigger tokens_deleted after delete on tokens
  for each row execute function revoke_below_token();

create or replace function revoke_below_session() returns trigger language plpgsql as $$
begin
  update tokens set revoked_at = now() where parent_session_id = old.id and revoked_at is null;
  return null;
end $$;

create or replace trigger sessions_revoke_minted after update of status, end_requested_at, key_generation on sessions
  for each row when (new.status in ('completed', 'failed', 'cancelled') or new.end_requested_at is not null
    or new.key_generation <> old.key_generation)
  execute function revoke_below_session();
create or replace trigger sessions_deleted_revoke_minted after delete on sessions
  for each row execute function revoke_below_session();
