// Projects and their containers, of which each project has one.
import { type Insertable, type Selectable, sql, type Updateable } from 'kysely'
import type { Db } from '../open.ts'
import type { ContainersTable, ProjectsTable, WorkspaceState } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'
import { prepared } from './prepared.ts'

export type ProjectRow = Selectable<ProjectsTable>
export type NewProject = Insertable<ProjectsTable>
export type ContainerRow = Selectable<ContainersTable>
export type ProjectWithContainer = ProjectRow & {
  wanted: ContainerRow['wanted']
  container_status: ContainerRow['status']
  container_reason: string | null
  /** Of the default workspace. */
  workspace_state: WorkspaceState
  workspace_error: string | null
  container_memory_mb: number | null
} & Pick<ContainerRow, 'container_id' | 'disk_used_bytes' | 'disk_measured_at' | 'disk_state'>

// A subquery, because a join would have columns of the same names.
const ofDefaultWorkspace = <T>(column: 'state' | 'prepare_error') =>
  sql<T>`(select ${sql.ref(column)} from workspaces where project_id = projects.id and is_default)`

const withContainer = (db: Db) =>
  db
    .selectFrom('projects')
    .innerJoin('containers', 'containers.project_id', 'projects.id')
    .selectAll('projects')
    .select(['wanted', 'status as container_status', 'reason as container_reason', 'container_id'])
    .select('containers.memory_mb as container_memory_mb')
    .select([
      ofDefaultWorkspace<WorkspaceState>('state').as('workspace_state'),
      ofDefaultWorkspace<string | null>('prepare_error').as('workspace_error'),
    ])
    .select(['disk_used_bytes', 'disk_measured_at', 'disk_state'])

export async function insertProject(
  db: Db,
  row: NewProject,
  wanted: ContainerRow['wanted'] = 'stopped',
): Promise<void> {
  await db.insertInto('projects').values(row).execute()
  await db.insertInto('containers').values({ project_id: row.id, wanted, status: 'absent' }).execute()
}

const byId = prepared<ProjectWithContainer, [id: string]>('project_by_id', (db) =>
  withContainer(db).where('projects.id', '=', '').compile(),
)

/** Also while it is being deleted: the caller checks `deleting_at`. */
export async function projectById(db: Db, id: string): Promise<ProjectWithContainer | undefined> {
  const [row] = await byId(db, id)
  return row
}

const byNames = prepared<{ given: string; id: string }, [names: string[], only_id: string | null]>(
  'projects_by_names',
  (db) =>
    sql<{ given: string; id: string }>`
      select given.name as given, projects.id
      from unnest(${[]}::text[]) as given(name)
      join projects on lower(projects.name) = lower(given.name)
      where projects.id = coalesce(${null}::uuid, projects.id)`.compile(db),
)

/** The ids by the names as they were given, also of projects that are being deleted; `only_id` is the only one that is seen. */
export async function projectIdsByName(
  db: Db,
  names: string[],
  only_id: string | undefined,
): Promise<Map<string, string>> {
  const found = await byNames(db, names, only_id ?? null)
  return new Map(found.map(({ given, id }) => [given, id]))
}

/**
 * Names among which one similar to the given text is likely: its neighbours in the index, those of about its length, and the
 * project whose id begins with it. The number of rows is bounded, however many projects there are.
 */
export async function namesLike(
  db: Db,
  text: string,
  only_id: string | undefined,
): Promise<{ name: string; by_id: boolean }[]> {
  const hex = /^[0-9a-f-]{4,35}$/.test(text) ? text.replaceAll('-', '') : undefined
  const seen = sql`deleting_at is null and id = coalesce(${only_id ?? null}::uuid, id)`
  const { rows } = await sql<{ name: string; by_id: boolean }>`
    (select name, true as by_id from projects where ${seen}
      and id between ${hex?.padEnd(32, '0') ?? null}::uuid and ${hex?.padEnd(32, 'f') ?? null}::uuid limit 1)
    union all
    (select name, false from projects where ${seen} and lower(name) >= lower(${text}) order by lower(name) limit 20)
    union all
    (select name, false from projects where ${seen} and lower(name) < lower(${text}) order by lower(name) desc limit 20)
    union all
    (select name, false from projects where ${seen}
      and char_length(name) between char_length(${text}) - 3 and char_length(${text}) + 3 limit 200)`.execute(
    db,
  )
  return rows
}

export async function projectNames(db: Db, ids: string[]): Promise<{ id: string; name: string }[]> {
  return await db.selectFrom('projects').select(['id', 'name']).where('id', 'in', ids).execute()
}

export async function projectByIdempotencyKey(
  db: Db,
  created_by: string,
  key: string,
): Promise<ProjectWithContainer | undefined> {
  return await withContainer(db)
    .where('created_by', '=', created_by)
    .where('idempotency_key', '=', key)
    .executeTakeFirst()
}

const likePattern = (text: string) => `%${text.replace(/[\\%_]/g, (found) => `\\${found}`)}%`

export async function listProjects(
  db: Db,
  filter: { name_contains?: string; only_id?: string } & PageRequest,
): Promise<Page<ProjectWithContainer>> {
  const from = readCursor(filter.cursor)
  let query = withContainer(db)
    .where('deleting_at', 'is', null)
    .orderBy('created_at')
    .orderBy('id')
    .limit(filter.limit + 1)
  if (filter.only_id) query = query.where('id', '=', filter.only_id)
  if (filter.name_contains) query = query.where('name', 'ilike', likePattern(filter.name_contains))
  if (from) query = query.where(sql<boolean>`(created_at, id::text) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.created_at, id: row.id }))
}

export async function updateProject(db: Db, id: string, change: Updateable<ProjectsTable>): Promise<void> {
  await db
    .updateTable('projects')
    .set({ ...change, updated_at: new Date().toISOString() })
    .where('id', '=', id)
    .execute()
}

/** Locked against other changes until the transaction ends; sessions can still be inserted. */
export async function lockProject(trx: Db, id: string): Promise<ProjectRow | undefined> {
  return await trx.selectFrom('projects').selectAll().where('id', '=', id).forNoKeyUpdate().executeTakeFirst()
}

const grantById = prepared<{ api_scope_grant: string | null }, [id: string]>('project_grant', (db) =>
  db.selectFrom('projects').select('api_scope_grant').where('id', '=', '').compile(),
)

/** Also null if the project does not exist. */
export async function grantOf(db: Db, id: string): Promise<string | null> {
  const [row] = await grantById(db, id)
  return row?.api_scope_grant ?? null
}

export async function markDeleting(db: Db, id: string): Promise<void> {
  await db
    .updateTable('projects')
    .set({ deleting_at: new Date().toISOString() })
    .where('id', '=', id)
    .where('deleting_at', 'is', null)
    .execute()
}

/** The project, all rows that reference it, and the tokens with a scope for it. */
export async function deleteProjectRows(db: Db, id: string): Promise<void> {
  await db
    .deleteFrom('tokens')
    .where('scope', 'in', [`project:${id}`, `project:${id}:ro`])
    .execute()
  await db.deleteFrom('projects').where('id', '=', id).execute()
}

/** For the reconciler. */
export async function allProjects(db: Db): Promise<ProjectWithContainer[]> {
  return await withContainer(db).orderBy('created_at').execute()
}

/** The number of these containers that were last seen running. */
export async function runningAmong(db: Db, ids: string[]): Promise<number> {
  const { running } = await db
    .selectFrom('containers')
    .select(({ fn }) => fn.countAll<number>().as('running'))
    .where('project_id', 'in', ids)
    .where('wanted', '=', 'running')
    .where('status', '=', 'running')
    .executeTakeFirstOrThrow()
  return Number(running)
}

/** Projects whose disk usage may change: running ones, those over their limit, and the given ones. */
export async function projectsOnDisk(db: Db, ids: string[]): Promise<ProjectWithContainer[]> {
  return await withContainer(db)
    .where('deleting_at', 'is', null)
    .where(sql<boolean>`(wanted = 'running' or disk_state <> 'ok' or projects.id = any(${ids}::uuid[]))`)
    .execute()
}

export async function saveContainer(
  db: Db,
  project_id: string,
  change: Updateable<ContainersTable>,
): Promise<void> {
  await db
    .updateTable('containers')
    .set({ ...change, updated_at: new Date().toISOString() })
    .where('project_id', '=', project_id)
    .execute()
}

/** Failures in a row; 0 if the project does not exist. */
export async function containerFailures(db: Db, project_id: string): Promise<number> {
  const row = await db
    .selectFrom('containers')
    .select('failures')
    .where('project_id', '=', project_id)
    .executeTakeFirst()
  return row?.failures ?? 0
}

/** Returns and clears the reason for the last end of the container. */
export async function takeLastEnd(db: Db, project_id: string): Promise<string | null> {
  const row = await db
    .selectFrom('containers')
    .select('last_end')
    .where('project_id', '=', project_id)
    .executeTakeFirst()
  const last_end = row?.last_end ?? null
  if (last_end !== null) await saveContainer(db, project_id, { last_end: null })
  return last_end
}
