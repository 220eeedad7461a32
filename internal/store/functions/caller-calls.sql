-- Opens and closes requests for caller tools, for any number of sessions in one statement: round trips to the database
-- are most of the cost of a call. A request is opened once per call_id. An open request is closed once, and is not
-- answered after its deadline. Opening and closing each append an event. A running session with open requests or open
-- questions of the approval inbox is `waiting`; without them it is `running` again. test/integration/session/status.test.ts
-- compares this with the transitions in internal/protocol/session-status.ts. A request keeps the audit row of the call that opened it; closing it writes that row
-- with the outcome.
--
-- `calls` is [{session_id, asks, closes}] with each session once. The loops run over numbers, and one insert writes all
-- events of a session, because a query inside a function costs several times as much as an expression.
create or replace function caller_calls(log_lock bigint, written_at timestamptz, calls jsonb) returns jsonb
language plpgsql as $$
declare
  of text;
  call jsonb;
  asks jsonb;
  closes jsonb;
  item jsonb;
  first bigint;
  project uuid;
  root text;
  creator text;
  state text;
  needs jsonb;
  next_status text;
  stored bigint;
  request caller_requests;
  made audit;
  locked text;
  types text[];
  datas jsonb[];
  touched jsonb[] := '{}';
begin
  locked := pg_advisory_xact_lock(log_lock)::text;
  for at_session in 0 .. jsonb_array_length(calls) - 1 loop
    call := calls->at_session;
    of := call->>'session_id';
    select next_index, project_id, root_session_id, created_by, status, requires
      into first, project, root, creator, state, needs from sessions where id = of for update;
    continue when not found;
    asks := call->'asks';
    closes := call->'closes';
    types := '{}';
    datas := '{}';

    if state not in ('completed', 'failed', 'cancelled') then
      for at_ask in 0 .. jsonb_array_length(asks) - 1 loop
        item := asks->at_ask;
        insert into caller_requests
          (id, session_id, caller_id, tool, arguments, call_id, status, created_at, deadline_at, audit)
        values ((item->>'id')::uuid, of, item->>'caller_id', item->>'tool', item->'arguments', item->>'call_id', 'open',
          (item->>'created_at')::timestamptz, (item->>'deadline_at')::timestamptz, item->'audit')
        on conflict (session_id, call_id) do nothing;
        continue when not found;
        types := types || 'caller_tool_request'::text;
        datas := datas || jsonb_build_object('request_id', item->'id', 'caller_id', item->'caller_id', 'tool', item->'tool',
          'arguments', item->'arguments', 'deadline_at', item->'deadline_at');
      end loop;
    end if;

    for at_close in 0 .. jsonb_array_length(closes) - 1 loop
      item := closes->at_close;
      update caller_requests set status = item->>'status', answer = item->'answer',
        answered_by = item->>'answered_by', answered_at = written_at
      where id = (item->>'id')::uuid and session_id = of and status = 'open'
        and (item->>'status' <> 'answered' or deadline_at > written_at)
      returning * into request;
      continue when not found;
      types := types || 'caller_tool_result'::text;
      datas := datas || (jsonb_build_object('request_id', request.id, 'caller_id', request.caller_id, 'tool', request.tool,
        'outcome', request.status) || case when jsonb_typeof(request.answer) = 'object' then request.answer else '{}'::jsonb end);
      made := jsonb_populate_record(null::audit, request.audit);
      insert into audit (at, caller_kind, caller_id, token_id, session_id, via, tool, action, project_id, outcome,
        milliseconds, request_id)
      values (made.at, made.caller_kind, made.caller_id, made.token_id, made.session_id, made.via, made.tool, made.action,
        made.project_id,
        case request.status when 'answered' then 'ok' when 'timed_out' then 'timeout' else 'conflict' end,
        greatest(0, extract(epoch from written_at - request.created_at) * 1000), made.request_id);
    end loop;
    continue when cardinality(types) = 0;

    next_status := state;
    if state = 'running' or (state = 'waiting' and needs = '[]') then
      next_status := 'waiting';
      -- If nothing was closed, the new requests are open.
      if 'caller_tool_result' = any (types) then
        if not exists (select from caller_requests where session_id = of and status = 'open')
          and not exists (select from approvals where session_id = of and status = 'open' and kind <> 'permission') then
          next_status := 'running';
        end if;
      end if;
      if next_status <> state then
        types := types || 'status'::text;
        datas := datas || jsonb_build_object('status', next_status);
      end if;
    end if;
    insert into events (session_id, index, project_id, root_session_id, type, at, data)
      select of, first + place - 1, project, root, type, written_at, data
      from unnest(types, datas) with ordinality as event (type, data, place);
    update sessions set next_index = first + cardinality(types), updated_at = written_at, status = next_status,
      reason = case when next_status = state then reason end,
      stored_bytes = stored_bytes + (select sum(octet_length(data::text) + 100) from unnest(datas) as event (data))
      where id = of returning stored_bytes into stored;
    touched := touched || jsonb_build_object('id', of, 'project_id', project, 'root_session_id', root, 'created_by', creator,
      'status', next_status, 'stored_bytes', stored, 'first_index', first, 'types', to_jsonb(types), 'data', to_jsonb(datas));
  end loop;
  return to_jsonb(touched);
end $$;
