// Schedules and their targets. Changing a schedule, or inserting or ending one of its runs, locks its row first.
import { type Insertable, type Selectable, sql, type Updateable } from 'kysely'
import type { Db } from '../../open.ts'
import type { SchedulesTable, ScheduleTargetsTable } from '../../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from '../page.ts'
import { actsNoMore, sessionById } from '../session/sessions.ts'

export type ScheduleRow = Selectable<SchedulesTable>
export type ScheduleChange = Updateable<SchedulesTable>
export type TargetRow = Selectable<ScheduleTargetsTable>
export type Target = { project_id: string; workspace_id: string | null }

export async function insertSchedule(
  trx: Db,
  row: Insertable<SchedulesTable>,
  targets: Target[],
): Promise<void> {
  await trx.insertInto('schedules').values(row).execute()
  await insertTargets(trx, row.id, targets)
}

export async function insertTargets(trx: Db, schedule_id: string, targets: Target[]): Promise<void> {
  if (targets.length === 0) return
  await trx
    .insertInto('schedule_targets')
    .values(targets.map((target) => ({ ...target, schedule_id, session_id: null })))
    .execute()
}

export async function deleteTargets(trx: Db, ids: number[]): Promise<void> {
  if (ids.length > 0) await trx.deleteFrom('schedule_targets').where('id', 'in', ids).execute()
}

export async function scheduleById(db: Db, id: string): Promise<ScheduleRow | undefined> {
  return await db.selectFrom('schedules').selectAll().where('id', '=', id).executeTakeFirst()
}

export async function lockSchedule(trx: Db, id: string): Promise<ScheduleRow | undefined> {
  return await trx.selectFrom('schedules').selectAll().where('id', '=', id).forUpdate().executeTakeFirst()
}

/** Ordered by id, so that transactions that lock several rows do not deadlock. */
export async function lockSchedules(trx: Db, ids: string[]): Promise<void> {
  await trx.selectFrom('schedules').select('id').where('id', 'in', ids).orderBy('id').forUpdate().execute()
}

export async function updateSchedule(db: Db, id: string, change: ScheduleChange): Promise<void> {
  await db.updateTable('schedules').set(change).where('id', '=', id).execute()
}

export async function deleteSchedule(db: Db, id: string): Promise<boolean> {
  const gone = await db.deleteFrom('schedules').where('id', '=', id).executeTakeFirst()
  return gone.numDeletedRows > 0n
}

export async function targetsOf(db: Db, schedule_ids: string[]): Promise<TargetRow[]> {
  if (schedule_ids.length === 0) return []
  return await db
    .selectFrom('schedule_targets')
    .selectAll()
    .where('schedule_id', 'in', schedule_ids)
    .orderBy('id')
    .execute()
}

/** Enabled schedules with a target in the project. */
export async function enabledSchedules(db: Db, project_id: string): Promise<ScheduleRow[]> {
  return await db
    .selectFrom('schedules')
    .selectAll()
    .where('enabled', '=', true)
    .where(
      sql<boolean>`exists (select 1 from schedule_targets t where t.schedule_id = schedules.id and t.project_id = ${project_id})`,
    )
    .orderBy('created_at')
    .execute()
}

/** `project_id`: with a target in that project. `only_project`: with all targets in that project. */
export async function listSchedules(
  db: Db,
  filter: { project_id?: string; only_project?: string; enabled?: boolean } & PageRequest,
): Promise<Page<ScheduleRow>> {
  const from = readCursor(filter.cursor)
  let query = db
    .selectFrom('schedules')
    .selectAll()
    .orderBy('created_at')
    .orderBy('id')
    .limit(filter.limit + 1)
  if (filter.project_id)
    query = query.where(
      sql<boolean>`exists (select 1 from schedule_targets t where t.schedule_id = schedules.id and t.project_id = ${filter.project_id})`,
    )
  if (filter.only_project)
    query = query.where(
      sql<boolean>`not exists (select 1 from schedule_targets t where t.schedule_id = schedules.id and t.project_id <> ${filter.only_project})`,
    )
  if (filter.enabled !== undefined) query = query.where('enabled', '=', filter.enabled)
  if (from) query = query.where(sql<boolean>`(created_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/**
 * Locked until the transaction ends. Without `wait`, schedules that another transaction has locked are skipped; with it they
 * are waited for, and skipped if they were advanced meanwhile. Schedules with an invalid token are not due.
 */
export async function lockDue(trx: Db, now: string, limit: number, wait: boolean): Promise<ScheduleRow[]> {
  const query = trx
    .selectFrom('schedules')
    .selectAll()
    .where('next_run_at', '<=', now)
    .where(
      sql<boolean>`(token_id is null or exists (select 1 from tokens where tokens.id = token_id
        and revoked_at is null and (expires_at is null or expires_at > ${now}::timestamptz)))`,
    )
    .orderBy('next_run_at')
    .limit(limit)
    .forUpdate()
  return await (wait ? query : query.skipLocked()).execute()
}

export async function advanceSchedules(
  trx: Db,
  moved: { id: string; next_run_at: string | null }[],
): Promise<void> {
  if (moved.length === 0) return
  await sql`
    update schedules set next_run_at = moved.next_run_at
    from unnest(${moved.map(({ id }) => id)}::text[],
      ${moved.map(({ next_run_at }) => next_run_at)}::timestamptz[]) as moved (id, next_run_at)
    where schedules.id = moved.id`.execute(trx)
}

export type Wakes = { due: string | null; expiry: string | null; lease: string | null }

/** The next times at which a run is due, a token of an enabled schedule expires, and the lease of a run expires. */
export async function nextWakes(db: Db, held_runs: string[]): Promise<Wakes> {
  const { rows } = await sql<Wakes>`
    select (select min(next_run_at) from schedules where next_run_at is not null) as due,
      (select min(expires_at) from tokens where expires_at is not null and revoked_at is null
        and exists (select 1 from schedules where token_id = tokens.id and enabled)) as expiry,
      (select min(lease_until) from schedule_runs where status = 'running' and id <> all(${held_runs}::text[])) as lease`.execute(
    db,
  )
  return rows[0]!
}

/** Enabled schedules whose token is no longer valid, locked, with the reason. */
export async function lockOrphaned(trx: Db, now: string): Promise<{ id: string; reason: string }[]> {
  const { rows } = await sql<{ id: string; reason: string }>`
    select schedules.id, case
      when tokens.id is null then 'token ' || token_id || ' no longer exists'
      when revoked_at is not null then 'token ' || token_id || ' was revoked'
      else 'token ' || token_id || ' has expired' end as reason
    from schedules left join tokens on tokens.id = token_id
    where enabled and token_id is not null
      and (tokens.id is null or revoked_at is not null or expires_at <= ${now}::timestamptz)
    order by schedules.id
    for update of schedules`.execute(trx)
  return rows
}

/** Sets the session of a target, if it still is `instead_of`. */
export async function pinSession(
  db: Db,
  target_id: number,
  session_id: string,
  instead_of: string | null,
): Promise<void> {
  await db
    .updateTable('schedule_targets')
    .set({ session_id })
    .where('id', '=', target_id)
    .where('session_id', 'is not distinct from', instead_of)
    .execute()
}

export async function unpin(trx: Db, schedule_id: string): Promise<void> {
  await trx
    .updateTable('schedule_targets')
    .set({ session_id: null })
    .where('schedule_id', '=', schedule_id)
    .execute()
}

export async function pinnedSession(db: Db, target_id: number | null): Promise<string | null> {
  if (target_id === null) return null
  const row = await db
    .selectFrom('schedule_targets')
    .select('session_id')
    .where('id', '=', target_id)
    .executeTakeFirst()
  return row?.session_id ?? null
}

/** Whether its token exists, is not revoked and has not expired, and its session has not ended. */
export async function principalCounts(
  db: Db,
  { token_id, session_id }: Pick<ScheduleRow, 'token_id' | 'session_id'>,
  now: string,
): Promise<boolean> {
  if (session_id !== null) {
    const session = await sessionById(db, session_id)
    if (!session || actsNoMore(session)) return false
  }
  if (token_id === null) return true
  const token = await db
    .selectFrom('tokens')
    .select('id')
    .where('id', '=', token_id)
    .where('revoked_at', 'is', null)
    .where((eb) => eb.or([eb('expires_at', 'is', null), eb('expires_at', '>', now)]))
    .executeTakeFirst()
  return token !== undefined
}

export type ScheduleCounts = { enabled: number; due: number; runs_queued: number; runs_running: number }

/** `due`: schedules whose next run is not claimed although its time has come. */
export async function countSchedules(db: Db): Promise<ScheduleCounts> {
  const { rows } = await sql<ScheduleCounts>`
    select (count(*) filter (where enabled))::int as enabled,
      (count(*) filter (where enabled and next_run_at <= now()))::int as due,
      (select count(*)::int from schedule_runs where status = 'queued') as runs_queued,
      (select count(*)::int from schedule_runs where status = 'running') as runs_running
    from schedules`.execute(db)
  return rows[0]!
}
