// Working directories of a project: resolved, listed, deleted, and their files read and written from outside the container.
// `preparation.ts` sets up git in them.
import type { Caller } from '../../auth/caller.ts'
import type { Config } from '../../config/load.ts'
import { Fault, unknown } from '../../fault.ts'
import * as files from '../../files/files.ts'
import { defaultWorkspace, newWorkspaceId } from '../../ids.ts'
import { didYouMean } from '../../lib/nearest.ts'
import type { Store } from '../../store/open.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import { activeSessions } from '../../store/rows/session/sessions.ts'
import * as rows from '../../store/rows/workspaces.ts'
import { requireDiskSpace } from '../disk/limit.ts'
import { requireProject } from '../project/require.ts'
import type { Directories } from './directories.ts'
import { containerPaths, type Layout } from './layout.ts'

export type WorkspacesDeps = {
  store: Store
  layout: Layout
  directories: Directories
  owner: { uid: number; gid: number }
  config: Config
  disk: { touched(project_id: string): void; measure(project_id: string): Promise<void> }
}

const shown = (row: rows.WorkspaceRow) => ({
  workspace_id: row.id,
  project_id: row.project_id,
  is_default: row.is_default,
  path: `${containerPaths.workspaces}/${row.id}`,
  state: row.state,
  prepared_at: row.prepared_at,
  prepare_error: row.prepare_error,
  created_at: row.created_at,
  created_by: row.created_by,
  last_used_at: row.last_used_at,
})

const similarAmong = 200

export function createWorkspaces(deps: WorkspacesDeps) {
  const { store, config, layout, directories } = deps
  const { db } = store

  /** Names similar ones among the recently used. */
  async function unknownWorkspace(project_id: string, id: string): Promise<Fault> {
    const { message } = unknown('workspace', id)
    const known = await rows.recentWorkspaces(db, project_id, similarAmong)
    return new Fault('not_found', message, didYouMean(id, known))
  }

  /** Without an id: the default workspace, or a new one with `create_workspace`. An unknown id is created or `not_found`. */
  async function resolve(
    caller: Pick<Caller, 'id'>,
    project_id: string,
    wanted: { workspace_id?: string; create_workspace?: boolean },
  ) {
    const id = wanted.workspace_id ?? (wanted.create_workspace ? newWorkspaceId() : defaultWorkspace)
    const known = await rows.workspaceById(db, project_id, id)
    if (!known) {
      if (!wanted.create_workspace) throw await unknownWorkspace(project_id, id)
      requireDiskSpace(config, await requireProject(db, project_id))
      // The row first: with it, the directory can be repaired if a droid has put something else in its place.
      await rows.insertWorkspace(db, { project_id, id, is_default: false, created_by: caller.id })
    }
    await directories.ensureWorkspace(project_id, id)
    if (known) return shown(known)
    return shown((await rows.workspaceById(db, project_id, id))!)
  }

  async function rootOf(project_id: string, workspace_id: string | undefined): Promise<files.Root> {
    const project = await requireProject(db, project_id)
    const id = workspace_id ?? defaultWorkspace
    if (!(await rows.workspaceById(db, project_id, id))) throw await unknownWorkspace(project_id, id)
    await directories.ensureWorkspace(project_id, id)
    return {
      host: layout.workspace(project_id, id),
      inside: `${containerPaths.workspaces}/${id}`,
      ...deps.owner,
      protected_paths: project.protected_paths,
    }
  }

  async function list(project_id: string, page: PageRequest) {
    await requireProject(db, project_id)
    const { items, next_cursor } = await rows.listWorkspaces(db, project_id, page)
    return { workspaces: items.map(shown), next_cursor }
  }

  async function remove(project_id: string, workspace_id: string) {
    const project = await requireProject(db, project_id)
    const row = await rows.workspaceById(db, project_id, workspace_id)
    if (!row) throw await unknownWorkspace(project_id, workspace_id)
    if (row.is_default)
      throw new Fault('conflict', 'the default workspace cannot be deleted', {
        hint: 'project delete removes it with its project',
      })
    const user = (await activeSessions(db, project_id)).find(
      (session) => session.workspace_id === workspace_id,
    )
    if (user)
      throw new Fault('conflict', `workspace ${workspace_id} is in use by session ${user.id}`, {
        hint: 'end the session first',
      })
    await directories.discardWorkspace(project_id, workspace_id)
    await rows.deleteWorkspaceRow(db, project_id, workspace_id)
    deps.disk.touched(project_id)
    // Deleting a workspace may end an exceeded disk limit: the next call must see that.
    if (project.disk_state !== 'ok') await deps.disk.measure(project_id)
    return { workspace_id, deleted: true as const }
  }

  return {
    resolve,
    list,
    remove,
    rootOf,
    listDir: async (project_id: string, id: string | undefined, path: string, page: PageRequest) =>
      await files.listDir(await rootOf(project_id, id), path, page),
    readFile: async (
      project_id: string,
      id: string | undefined,
      path: string,
      range: { offset: number; max_bytes: number },
    ) => await files.readFile(await rootOf(project_id, id), path, range),
    writeFile: async (
      project_id: string,
      id: string | undefined,
      path: string,
      bytes: Buffer,
      options: { mode?: string; create_parents: boolean },
    ) => {
      requireDiskSpace(config, await requireProject(db, project_id))
      try {
        return await files.writeFile(await rootOf(project_id, id), path, bytes, options)
      } finally {
        // After the write: a measurement that runs now may have passed the file already.
        deps.disk.touched(project_id)
      }
    },
    pathInfo: async (project_id: string, id: string | undefined, path: string) =>
      await files.pathInfo(await rootOf(project_id, id), path),
  }
}
export type Workspaces = ReturnType<typeof createWorkspaces>
