import type { Selectable } from 'kysely'
import { sql } from 'kysely'
import type { Db } from '../open.ts'
import type { WorkspaceState, WorkspacesTable } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'

export type WorkspaceRow = Selectable<WorkspacesTable>

/** True if it was inserted, false if it exists. */
export async function insertWorkspace(
  db: Db,
  row: { project_id: string; id: string; is_default: boolean; created_by: string; state?: WorkspaceState },
): Promise<boolean> {
  const at = new Date().toISOString()
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('workspaces')
    .values({ ...row, created_at: at, last_used_at: at })
    .onConflict((conflict) => conflict.columns(['project_id', 'id']).doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows === 1n
}

export async function workspaceById(
  db: Db,
  project_id: string,
  id: string,
): Promise<WorkspaceRow | undefined> {
  return await db
    .selectFrom('workspaces')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('id', '=', id)
    .executeTakeFirst()
}

export async function listWorkspaces(
  db: Db,
  project_id: string,
  page: PageRequest,
): Promise<Page<WorkspaceRow>> {
  const from = readCursor(page.cursor)
  let query = db
    .selectFrom('workspaces')
    .selectAll()
    .where('project_id', '=', project_id)
    .orderBy('created_at')
    .orderBy('id')
    .limit(page.limit + 1)
  if (from) query = query.where(sql<boolean>`(created_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), page.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/** The ids of the recently used ones, the default workspace first. */
export async function recentWorkspaces(db: Db, project_id: string, most: number): Promise<string[]> {
  const rows = await db
    .selectFrom('workspaces')
    .select('id')
    .where('project_id', '=', project_id)
    .orderBy('is_default', 'desc')
    .orderBy('last_used_at', 'desc')
    .limit(most)
    .execute()
  return rows.map(({ id }) => id)
}

export async function unpreparedWorkspaces(db: Db, project_id: string): Promise<WorkspaceRow[]> {
  return await db
    .selectFrom('workspaces')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('prepared_at', 'is', null)
    .orderBy('created_at')
    .execute()
}

export async function saveState(
  db: Db,
  project_id: string,
  id: string,
  change: { state: 'preparing' } | { state: 'ready' } | { state: 'failed'; error: string },
): Promise<void> {
  await db
    .updateTable('workspaces')
    .set({
      state: change.state,
      // The error of the last attempt stays visible during the next one.
      ...(change.state === 'preparing'
        ? {}
        : { prepare_error: change.state === 'failed' ? change.error : null }),
      prepared_at: change.state === 'ready' ? new Date().toISOString() : null,
    })
    .where('project_id', '=', project_id)
    .where('id', '=', id)
    .execute()
}

/** Workspaces that are no longer being prepared: the container failed to start, or was stopped. */
export async function endPreparing(
  db: Db,
  project_id: string,
  change: { state: 'pending' } | { state: 'failed'; error: string },
): Promise<void> {
  await db
    .updateTable('workspaces')
    .set({ state: change.state, ...(change.state === 'failed' ? { prepare_error: change.error } : {}) })
    .where('project_id', '=', project_id)
    .where('state', '=', 'preparing')
    .execute()
}

/** Projects with a workspace that is being prepared, or was when the server stopped. */
export async function preparingProjects(db: Db): Promise<string[]> {
  const found = await db
    .selectFrom('workspaces')
    .select('project_id')
    .distinct()
    .where('state', '=', 'preparing')
    .execute()
  return found.map((row) => row.project_id)
}

export async function deleteWorkspaceRow(db: Db, project_id: string, id: string): Promise<void> {
  await db.deleteFrom('workspaces').where('project_id', '=', project_id).where('id', '=', id).execute()
}
