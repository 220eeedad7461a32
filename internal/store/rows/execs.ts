// Detached commands. A row is written before its command is started, and its end is recorded once; only `lost`, an end that
// was not observed, is replaced when the container reports the end later.
import { type Insertable, type Selectable, sql } from 'kysely'
import { Fault } from '../../fault.ts'
import type { Db, Store } from '../open.ts'
import type { ExecsTable } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'
import { lockProject } from './projects.ts'

export type ExecRow = Selectable<ExecsTable>
export type NewExec = Omit<Insertable<ExecsTable>, 'status'>
export type Ending = {
  exec_id: string
  status: Exclude<ExecRow['status'], 'running'>
  exit_code: number | null
  reason: string | null
  ended_at: string
  stdout_bytes: number
  stderr_bytes: number
}

export async function runningExecs(db: Db, project_id: string): Promise<ExecRow[]> {
  return await db
    .selectFrom('execs')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('status', '=', 'running')
    .execute()
}

async function requireRoom(db: Db, project_id: string, most_running: number): Promise<void> {
  const { running } = await db
    .selectFrom('execs')
    .select(({ fn }) => fn.countAll<number>().as('running'))
    .where('project_id', '=', project_id)
    .where('status', '=', 'running')
    .executeTakeFirstOrThrow()
  if (Number(running) < most_running) return
  throw new Fault(
    'exhausted',
    `this project has ${most_running} running detached commands, which is the limit`,
    {
      hint: 'wait for one to end, end one with exec_kill, or raise execs.running in the config',
    },
  )
}

/** Counted and written under the lock of the project. Ended commands beyond the newest `kept` are deleted. */
export async function insertExec(
  store: Store,
  row: NewExec,
  limits: { running: number; kept: number },
): Promise<void> {
  // First without the lock, so that refused commands do not wait for it.
  await requireRoom(store.db, row.project_id, limits.running)
  await store.db.transaction().execute(async (trx) => {
    await lockProject(trx, row.project_id)
    await requireRoom(trx, row.project_id, limits.running)
    await trx
      .insertInto('execs')
      .values({ ...row, status: 'running' })
      .execute()
    const over = trx
      .selectFrom('execs')
      .select('id')
      .where('project_id', '=', row.project_id)
      .where('status', '<>', 'running')
      .orderBy('started_at', 'desc')
      .offset(limits.kept)
    await trx.deleteFrom('execs').where('id', 'in', over).execute()
  })
}

export async function execById(db: Db, id: string): Promise<ExecRow | undefined> {
  return await db.selectFrom('execs').selectAll().where('id', '=', id).executeTakeFirst()
}

/** For a command that was not started. */
export async function deleteExec(db: Db, id: string): Promise<void> {
  await db.deleteFrom('execs').where('id', '=', id).execute()
}

export async function listExecs(
  db: Db,
  filter: { project_id: string; status?: ExecRow['status'] } & PageRequest,
): Promise<Page<ExecRow>> {
  const from = readCursor(filter.cursor)
  let query = db
    .selectFrom('execs')
    .selectAll()
    .where('project_id', '=', filter.project_id)
    .orderBy('started_at')
    .orderBy('id')
    .limit(filter.limit + 1)
  if (filter.status) query = query.where('status', '=', filter.status)
  if (from) query = query.where(sql<boolean>`(started_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.started_at, id: row.id }))
}

/**
 * Returns the ids of the commands that this ended. Ids of other projects are ignored. The time of the end is what the
 * container reports, limited to between the start and now.
 */
export async function endExecs(db: Db, project_id: string, endings: Ending[]): Promise<string[]> {
  if (endings.length === 0) return []
  const { rows } = await sql<{ id: string }>`
    update execs set status = reported.status, exit_code = reported.exit_code, reason = reported.reason,
      stdout_bytes = reported.stdout_bytes, stderr_bytes = reported.stderr_bytes,
      ended_at = least(now(), greatest(started_at, reported.ended_at))
    from jsonb_to_recordset(${JSON.stringify(endings)}::jsonb) as reported (exec_id text, status text, exit_code int,
      reason text, ended_at timestamptz, stdout_bytes bigint, stderr_bytes bigint)
    where execs.id = reported.exec_id and execs.project_id = ${project_id}
      and (execs.status = 'running' or (execs.status = 'lost' and reported.status <> 'lost'))
    returning execs.id`.execute(db)
  return rows.map(({ id }) => id)
}

/** Running commands whose end will not be reported: all of the project, or the given ones. */
export async function loseExecs(
  db: Db,
  project_id: string,
  reason: string,
  ids?: string[],
): Promise<string[]> {
  if (ids?.length === 0) return []
  let query = db
    .updateTable('execs')
    .set({ status: 'lost', reason, ended_at: sql`now()` })
    .where('project_id', '=', project_id)
    .where('status', '=', 'running')
  if (ids) query = query.where('id', 'in', ids)
  return (await query.returning('id').execute()).map(({ id }) => id)
}

/** Running commands whose deadline has passed. */
export async function overdueExecs(db: Db, before: Date): Promise<Pick<ExecRow, 'id' | 'project_id'>[]> {
  return await db
    .selectFrom('execs')
    .select(['id', 'project_id'])
    .where('status', '=', 'running')
    .where('deadline_at', '<', before.toISOString())
    .execute()
}
