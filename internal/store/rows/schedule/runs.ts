// Runs of schedules: inserted when they are due, owned by the server that executes them as long as it renews its lease, and
// ended once.
import { type Insertable, type Selectable, sql } from 'kysely'
import { Fault } from '../../../fault.ts'
import type { Db } from '../../open.ts'
import type { RunStatus, ScheduleRunsTable } from '../../schema.ts'

export type RunRow = Selectable<ScheduleRunsTable>
export type NewRun = Insertable<ScheduleRunsTable>

/** Returns the inserted runs; existing ones are skipped. */
export async function insertRuns(trx: Db, runs: NewRun[]): Promise<RunRow[]> {
  const placed: RunRow[] = []
  // A statement has at most 65535 parameters.
  for (let at = 0; at < runs.length; at += 1000)
    placed.push(
      ...(await trx
        .insertInto('schedule_runs')
        .values(runs.slice(at, at + 1000))
        .onConflict((conflict) => conflict.doNothing())
        .returningAll()
        .execute()),
    )
  return placed.sort((a, b) => a.number - b.number)
}

export type Active = { running: number; queued: number }

export async function activeRuns(trx: Db, target_ids: number[]): Promise<Map<number, Active>> {
  if (target_ids.length === 0) return new Map()
  const { rows } = await sql<{ target_id: number } & Active>`
    select target_id, (count(*) filter (where status = 'running'))::int as running,
      (count(*) filter (where status = 'queued'))::int as queued
    from schedule_runs
    where target_id = any(${target_ids}::bigint[]) and status in ('running', 'queued')
    group by target_id`.execute(trx)
  return new Map(rows.map(({ target_id, ...active }) => [target_id, active]))
}

export type RunStart = {
  id: string
  started_at: string
  session_id: string | null
  turn_id: string | null
  since_index: number | null
}

export async function startRuns(db: Db, starts: RunStart[]): Promise<void> {
  const column = <K extends keyof RunStart>(name: K) => starts.map((start) => start[name])
  await sql`
    update schedule_runs set started_at = s.started_at, session_id = s.session_id, turn_id = s.turn_id,
      since_index = s.since_index
    from unnest(${column('id')}::text[], ${column('started_at')}::timestamptz[], ${column('session_id')}::text[],
      ${column('turn_id')}::text[], ${column('since_index')}::bigint[])
      as s (id, started_at, session_id, turn_id, since_index)
    where schedule_runs.id = s.id`.execute(db)
}

export type RunEnd = { id: string; status: RunStatus; output: string | null; error: string | null }

/** Runs that have already ended are not changed. */
export async function endRuns(trx: Db, ends: RunEnd[], ended_at: string): Promise<void> {
  const column = <K extends keyof RunEnd>(name: K) => ends.map((end) => end[name])
  await sql`
    update schedule_runs set status = e.status, output = e.output, error = e.error, prompt = null, lease_until = null,
      ended_at = ${ended_at}::timestamptz
    from unnest(${column('id')}::text[], ${column('status')}::text[], ${column('output')}::text[],
      ${column('error')}::text[]) as e (id, status, output, error)
    where schedule_runs.id = e.id and schedule_runs.status = 'running'`.execute(trx)
}

/** Starts the first queued run of each target that has no running one. */
export async function promoteQueued(trx: Db, target_ids: number[], lease: Lease): Promise<RunRow[]> {
  const { rows } = await sql<RunRow>`
    update schedule_runs set status = 'running', claimed_by = ${lease.claimed_by},
      lease_until = ${lease.lease_until}::timestamptz
    where id in (
      select distinct on (target_id) id from schedule_runs as queued
      where target_id = any(${target_ids}::bigint[]) and status = 'queued' and not exists (
        select 1 from schedule_runs as other where other.target_id = queued.target_id and other.status = 'running')
      order by target_id, number)
    returning *`.execute(trx)
  return rows
}

/** For a whole schedule, or for some of its targets. */
export async function cancelQueued(
  trx: Db,
  of: { schedule_id: string; target_ids?: number[] },
  error: string,
  at: string,
): Promise<void> {
  if (of.target_ids?.length === 0) return
  let query = trx
    .updateTable('schedule_runs')
    .set({ status: 'cancelled', error, ended_at: at, prompt: null })
    .where('schedule_id', '=', of.schedule_id)
    .where('status', '=', 'queued')
  if (of.target_ids) query = query.where('target_id', 'in', of.target_ids)
  await query.execute()
}

type Lease = { claimed_by: string; lease_until: string }

/** Runs with an expired lease. This server executes those in `except`, even if their lease has expired. */
export async function takeOver(
  db: Db,
  lease: Lease,
  now: string,
  except: string[],
  limit: number,
): Promise<RunRow[]> {
  return await db
    .updateTable('schedule_runs')
    .set(lease)
    .where('id', 'in', (eb) =>
      eb
        .selectFrom('schedule_runs')
        .select('id')
        .where('status', '=', 'running')
        .where('lease_until', '<=', now)
        .where(sql<boolean>`id <> all(${except}::text[])`)
        .orderBy('lease_until')
        .limit(limit)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .execute()
}

/** Returns the runs that this server still owns: others were deleted with their project, or taken over. */
export async function renewLeases(db: Db, lease: Lease, ids: string[]): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`
    update schedule_runs set lease_until = ${lease.lease_until}::timestamptz
    where id = any(${ids}::text[]) and status = 'running' and claimed_by = ${lease.claimed_by}
    returning id`.execute(db)
  return new Set(rows.map(({ id }) => id))
}

/** Lets other servers take the runs over at once. */
export async function releaseLeases(db: Db, claimed_by: string, now: string): Promise<void> {
  await db
    .updateTable('schedule_runs')
    .set({ lease_until: now })
    .where('claimed_by', '=', claimed_by)
    .where('status', '=', 'running')
    .execute()
}

/** For the runs of all earlier servers, none of which is running. */
export async function releaseAllLeases(db: Db, now: string): Promise<void> {
  await db
    .updateTable('schedule_runs')
    .set({ lease_until: now })
    .where('status', '=', 'running')
    .where('lease_until', '>', now)
    .execute()
}

export async function lastRuns(db: Db, target_ids: number[]): Promise<Map<number, RunRow>> {
  if (target_ids.length === 0) return new Map()
  const { rows } = await sql<RunRow>`
    select last.* from unnest(${target_ids}::bigint[]) as t (id)
    cross join lateral (select * from schedule_runs where target_id = t.id order by number desc limit 1) as last`.execute(
    db,
  )
  return new Map(rows.map((row) => [row.target_id!, row]))
}

/** Newest first. */
export async function listRuns(
  db: Db,
  filter: { schedule_id: string; status?: RunStatus; project_id?: string; limit: number; cursor?: string },
): Promise<{ items: RunRow[]; next_cursor: string | null }> {
  let query = db
    .selectFrom('schedule_runs')
    .selectAll()
    .where('schedule_id', '=', filter.schedule_id)
    .orderBy('number', 'desc')
    .limit(filter.limit + 1)
  if (filter.status) query = query.where('status', '=', filter.status)
  if (filter.project_id) query = query.where('project_id', '=', filter.project_id)
  if (filter.cursor !== undefined) {
    if (!/^\d{1,15}$/.test(filter.cursor))
      throw new Fault('invalid', 'cursor is invalid: it was not returned by history', {
        hint: 'omit it to start from the newest run',
      })
    query = query.where('number', '<', Number(filter.cursor))
  }
  const rows = await query.execute()
  const items = rows.slice(0, filter.limit)
  return { items, next_cursor: rows.length > filter.limit ? String(items.at(-1)!.number) : null }
}

/** Deletes all but the newest `keep` runs of each schedule; runs that have not ended are kept. */
export async function trimRuns(trx: Db, schedule_ids: string[], keep: number): Promise<void> {
  await sql`
    delete from schedule_runs using (
      select s.id, (select number from schedule_runs where schedule_id = s.id
        order by number desc offset ${keep} limit 1) as number
      from unnest(${schedule_ids}::text[]) as s (id)) as last
    where schedule_runs.schedule_id = last.id and schedule_runs.number <= last.number
      and schedule_runs.ended_at is not null`.execute(trx)
}

export async function deleteRunsBefore(db: Db, before: string): Promise<void> {
  await db.deleteFrom('schedule_runs').where('ended_at', '<', before).execute()
}
