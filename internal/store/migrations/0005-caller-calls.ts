// Asking and answering callers' tools in one statement each, however many come together: the way to the database and
// back is most of what a call costs. The rules are few and stand here once: a call is asked once, an open request is
// closed once and not answered after its deadline, both leave an event, and a session whose droid waits says so.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table droid_calls (
      session_id text not null references sessions on delete cascade,
      call_id text not null,
      begun_at timestamptz not null default now(),
      primary key (session_id, call_id)
    )`.execute(db)
  // A session turns to waiting and back with every call. With no index on its status, and room in its page, that moves
  // nothing but the row.
  await sql`drop index sessions_active`.execute(db)
  await sql`create index sessions_living on sessions (project_id) where ended_at is null`.execute(db)
  await sql`create index sessions_idle on sessions (idle_at) where idle_at is not null`.execute(db)
  await sql`alter table sessions set (fillfactor = 70)`.execute(db)
  await sql`
    create function caller_calls(log_lock bigint, written_at timestamptz, asks jsonb, closes jsonb) returns jsonb
    language plpgsql as $$
    declare
      of text;
      tip bigint;
      next_status text;
      session sessions;
      request caller_requests;
      item jsonb;
      placed jsonb[] := '{}';
      touched jsonb[] := '{}';
    begin
      perform pg_advisory_xact_lock(log_lock);
      for of in select distinct one->>'session_id' from jsonb_array_elements(asks || closes) one order by 1 loop
        select * into session from sessions where id = of for update;
        continue when not found;
        tip := session.next_index;

        for item in select one from jsonb_array_elements(asks) one where one->>'session_id' = of loop
          continue when session.status in ('completed', 'failed', 'cancelled');
          insert into caller_requests (id, session_id, caller_id, tool, arguments, call_id, status, created_at, deadline_at)
          values ((item->>'id')::uuid, of, item->>'caller_id', item->>'tool', item->'arguments', item->>'call_id', 'open',
            (item->>'created_at')::timestamptz, (item->>'deadline_at')::timestamptz)
          on conflict (session_id, call_id) do nothing;
          continue when not found;
          item := jsonb_build_object('request_id', item->'id', 'caller_id', item->'caller_id', 'tool', item->'tool',
            'arguments', item->'arguments', 'deadline_at', item->'deadline_at');
          insert into events (session_id, index, project_id, root_session_id, type, at, data)
          values (of, tip, session.project_id, session.root_session_id, 'caller_tool_request', written_at, item);
          placed := placed || jsonb_build_object('session_id', of, 'index', tip, 'type', 'caller_tool_request', 'data', item);
          tip := tip + 1;
        end loop;

        for item in select one from jsonb_array_elements(closes) one where one->>'session_id' = of loop
          update caller_requests set status = item->>'status', answer = item->'answer',
            answered_by = item->>'answered_by', answered_at = written_at
          where id = (item->>'id')::uuid and session_id = of and status = 'open'
            and (item->>'status' <> 'answered' or deadline_at > written_at)
          returning * into request;
          continue when not found;
          item := jsonb_build_object('request_id', request.id, 'caller_id', request.caller_id, 'tool', request.tool,
            'outcome', request.status) || case when jsonb_typeof(request.answer) = 'object' then request.answer else '{}' end;
          insert into events (session_id, index, project_id, root_session_id, type, at, data)
          values (of, tip, session.project_id, session.root_session_id, 'caller_tool_result', written_at, item);
          placed := placed || jsonb_build_object('session_id', of, 'index', tip, 'type', 'caller_tool_result', 'data', item);
          tip := tip + 1;
          insert into audit (at, caller_kind, caller_id, token_id, session_id, via, tool, action, project_id, outcome,
            milliseconds, request_id)
          values (request.created_at, 'session', of, session.token_id, of, 'socket', 'caller_tool',
            request.caller_id || '_' || request.tool, session.project_id::text,
            case request.status when 'answered' then 'ok' when 'timed_out' then 'timeout' else 'conflict' end,
            greatest(0, extract(epoch from written_at - request.created_at) * 1000), request.id);
        end loop;
        continue when tip = session.next_index;

        next_status := null;
        if session.status = 'running' or (session.status = 'waiting' and session.requires = '[]') then
          next_status := case when exists (select from caller_requests where session_id = of and status = 'open')
            then 'waiting' else 'running' end;
        end if;
        if next_status <> session.status then
          item := jsonb_build_object('status', next_status);
          insert into events (session_id, index, project_id, root_session_id, type, at, data)
          values (of, tip, session.project_id, session.root_session_id, 'status', written_at, item);
          placed := placed || jsonb_build_object('session_id', of, 'index', tip, 'type', 'status', 'data', item);
          tip := tip + 1;
          update sessions set next_index = tip, updated_at = written_at, status = next_status, reason = null where id = of;
        else
          update sessions set next_index = tip, updated_at = written_at where id = of;
        end if;
        touched := touched || jsonb_build_object('id', of, 'project_id', session.project_id, 'root_session_id',
          session.root_session_id, 'created_by', session.created_by, 'status', coalesce(next_status, session.status));
      end loop;
      return jsonb_build_object('events', to_jsonb(placed), 'rows', to_jsonb(touched));
    end $$`.execute(db)
}
