-- The model spending of projects: the total, the costs that are not yet added to it, and reservations of running requests.
-- See migrations/0008-spending.ts for the tables.

create or replace function project_spending_begin() returns trigger language plpgsql as $$
begin
  insert into project_spending (project_id) values (new.id);
  return null;
end $$;

create or replace trigger project_spending_begin after insert on projects
  for each row execute function project_spending_begin();

create or replace function project_costs_add() returns trigger language plpgsql as $$
begin
  insert into project_costs (project_id, usd) values (new.project_id, new.cost_usd - old.cost_usd);
  return null;
end $$;

create or replace trigger project_costs_add after update of cost_usd on sessions
  for each row when (new.cost_usd > old.cost_usd) execute function project_costs_add();

create or replace function project_costs_end() returns trigger language plpgsql as $$
begin
  delete from project_costs where project_id = old.id;
  return null;
end $$;

create or replace trigger project_costs_end after delete on projects
  for each row execute function project_costs_end();

-- Admits a request while the spent and the reserved amounts are below the limit. The row of the project is locked first,
-- so that requests are decided one after the other. One statement then reads all amounts: in its snapshot, a request that
-- is being settled is either still reserved or already spent.
create or replace function reserve_model_cost(reservation uuid, project uuid, session text, provider text, model text,
  amount double precision, default_limit double precision, home text, process text, lease_seconds double precision)
returns table (admitted boolean, spent_usd double precision, reserved_usd double precision, limit_usd double precision)
language plpgsql as $$
declare
  entries bigint;
begin
  -- No wait for the disk: only a crash of the machine can lose the reservation, and it ends the request as well.
  perform set_config('synchronous_commit', 'off', true);
  select coalesce((p.limits->>'max_cost_usd')::double precision, default_limit) into limit_usd
    from project_spending s join projects p on p.id = s.project_id
    where s.project_id = project and p.deleting_at is null for update of s;
  if not found then return; end if;
  select s.spent_usd + c.usd, c.entries,
      (select coalesce(sum(r.amount_usd), 0) from model_reservations r where r.project_id = project)
    into spent_usd, entries, reserved_usd
    from project_spending s,
      (select coalesce(sum(usd), 0) as usd, count(*) as entries from project_costs where project_id = project) c
    where s.project_id = project;
  admitted := limit_usd = 0 or spent_usd + reserved_usd < limit_usd;
  if admitted then
    insert into model_reservations (id, project_id, session_id, provider, model, amount_usd, home, process, lease_until)
    values (reservation, project, session, provider, model, amount, home, process,
      now() + make_interval(secs => lease_seconds));
  end if;
  if entries > 100 then
    with added as (delete from project_costs where project_id = project returning usd)
    update project_spending s set spent_usd = s.spent_usd + (select coalesce(sum(usd), 0) from added)
      where s.project_id = project;
  end if;
  return next;
end $$;
