// What a project has spent on models and what its requests under way may still cost. Spending is kept per project, not
// summed over its sessions: deleting sessions must not give money back. What is spent comes as rows of its own, which are
// added up later: a request that is admitted never waits for one that is being recorded. Costs and reservations have no
// foreign keys, because checking them would lock rows in the opposite order to the transactions that record usage.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table project_spending (
      project_id uuid primary key references projects on delete cascade,
      spent_usd double precision not null default 0
    ) with (fillfactor = 50)`.execute(db)
  await sql`
    insert into project_spending (project_id, spent_usd)
    select id, coalesce((select sum(cost_usd) from sessions where project_id = projects.id), 0) from projects`.execute(
    db,
  )
  await sql`
    create function project_spending_begin() returns trigger language plpgsql as $$
    begin
      insert into project_spending (project_id) values (new.id);
      return null;
    end $$`.execute(db)
  await sql`
    create trigger project_spending_begin after insert on projects
    for each row execute function project_spending_begin()`.execute(db)
  await sql`create table project_costs (project_id uuid not null, usd double precision not null)`.execute(db)
  await sql`create index project_costs_project on project_costs (project_id)`.execute(db)
  await sql`
    create function project_costs_add() returns trigger language plpgsql as $$
    begin
      insert into project_costs (project_id, usd) values (new.project_id, new.cost_usd - old.cost_usd);
      return null;
    end $$`.execute(db)
  await sql`
    create trigger project_costs_add after update of cost_usd on sessions
    for each row when (new.cost_usd > old.cost_usd) execute function project_costs_add()`.execute(db)
  await sql`
    create function project_costs_end() returns trigger language plpgsql as $$
    begin
      delete from project_costs where project_id = old.id;
      return null;
    end $$`.execute(db)
  await sql`
    create trigger project_costs_end after delete on projects
    for each row execute function project_costs_end()`.execute(db)
  await sql`
    create table model_reservations (
      id uuid primary key,
      project_id uuid not null,
      session_id text not null,
      provider text not null,
      model text not null,
      amount_usd double precision not null,
      home text not null,
      process text not null,
      created_at timestamptz not null default now(),
      lease_until timestamptz not null
    )`.execute(db)
  await sql`create index model_reservations_project on model_reservations (project_id)`.execute(db)
  // Admits a request while what is spent and what is reserved are below the limit. The row of the project is locked first,
  // so that one is decided after the other; then everything is read by one statement, in which a request that is being
  // settled is either still reserved or already spent.
  await sql`
    create function reserve_model_cost(reservation uuid, project uuid, session text, provider text, model text,
      amount double precision, default_limit double precision, home text, process text, lease_seconds double precision)
    returns table (admitted boolean, spent_usd double precision, reserved_usd double precision, limit_usd double precision)
    language plpgsql as $$
    declare
      entries bigint;
    begin
      -- Nobody waits for the disk here: only a crash of the machine, which ends the request as well, can lose it.
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
    end $$`.execute(db)
}
