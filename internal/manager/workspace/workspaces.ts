// Working directories of a project: resolved, prepared with git by the container itself, read and written from
// outside without leaving them.
import type { Caller } from '../../auth/caller.ts'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf, unknown } from '../../fault.ts'
import * as files from '../../files/files.ts'
import { defaultWorkspace, newWorkspaceId } from '../../ids.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import type { ProjectWithContainer } from '../../store/rows/projects.ts'
import * as rows from '../../store/rows/workspaces.ts'
import { requireRoom } from '../disk/limit.ts'
import type { SupervisorOf } from '../exec/supervised.ts'
import type { Projects } from '../project/projects.ts'
import type { Directories } from './directories.ts'
import { containerPaths, type Layout } from './layout.ts'

export type WorkspacesDeps = {
  store: Store
  layout: Layout
  projects: Projects
  directories: Directories
  owner: { uid: number; gid: number }
  log: Log
  /** Projects whose remote is not cloned yet: no droid starts in them before. */
  preparing: Set<string>
  /** Clones the remote in the project's container; the error in words, or nothing. */
  clone: (project_id: string, remote_url: string, signal: AbortSignal | undefined) => Promise<string | null>
  supervisorOf: SupervisorOf
  config: Config
  disk: { touched(project_id: string): void; measure(project_id: string): Promise<void> }
  /** Whether something lives in a workspace, in words, or nothing. */
  inUse: (project_id: string, workspace_id: string) => Promise<string | undefined>
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

const initSeconds = 60

export function createWorkspaces(deps: WorkspacesDeps) {
  const { store, config, layout, projects, directories } = deps
  const { db } = store

  /** No id: the default one, or a new one. A known id: it. An unknown one: made if `create_workspace`, else not found. */
  async function resolve(
    caller: Pick<Caller, 'id'>,
    project_id: string,
    wanted: { workspace_id?: string; create_workspace?: boolean },
  ) {
    const id = wanted.workspace_id ?? (wanted.create_workspace ? newWorkspaceId() : defaultWorkspace)
    const known = await rows.workspaceById(db, project_id, id)
    if (!known) {
      if (!wanted.create_workspace) throw unknown('workspace', id)
      requireRoom(config, await projects.require(project_id))
      // The row first: what it names can then be repaired, whatever a droid has put in its place.
      await rows.insertWorkspace(db, { project_id, id, is_default: false, created_by: caller.id })
    }
    await directories.ensureWorkspace(project_id, id)
    if (known) return shown(known)
    return shown((await rows.workspaceById(db, project_id, id))!)
  }

  async function rootOf(project_id: string, workspace_id: string | undefined): Promise<files.Root> {
    const project = await projects.require(project_id)
    const id = workspace_id ?? defaultWorkspace
    if (!(await rows.workspaceById(db, project_id, id))) throw unknown('workspace', id)
    await directories.ensureWorkspace(project_id, id)
    return {
      host: layout.workspace(project_id, id),
      inside: `${containerPaths.workspaces}/${id}`,
      ...deps.owner,
      protected_paths: project.protected_paths,
    }
  }

  async function list(project_id: string, page: PageRequest) {
    await projects.require(project_id)
    const { items, next_cursor } = await rows.listWorkspaces(db, project_id, page)
    return { workspaces: items.map(shown), next_cursor }
  }

  async function remove(project_id: string, workspace_id: string) {
    const project = await projects.require(project_id)
    const row = await rows.workspaceById(db, project_id, workspace_id)
    if (!row) throw unknown('workspace', workspace_id)
    if (row.is_default)
      throw new Fault('conflict', 'the default workspace stays as long as its project', {
        hint: 'project delete removes both',
      })
    const use = await deps.inUse(project_id, workspace_id)
    if (use)
      throw new Fault('conflict', `workspace ${workspace_id} is in use by ${use}`, { hint: 'end it first' })
    await directories.discardWorkspace(project_id, workspace_id)
    await rows.deleteWorkspaceRow(db, project_id, workspace_id)
    deps.disk.touched(project_id)
    // One of the ways out of a limit: what comes next finds the project with room again.
    if (project.disk_state !== 'ok') await deps.disk.measure(project_id)
    return { workspace_id, deleted: true as const }
  }

  /** An image without git is no reason to refuse a workspace. */
  async function init(
    project_id: string,
    id: string,
    signal: AbortSignal | undefined,
  ): Promise<string | null> {
    const link = await deps.supervisorOf(project_id, signal)
    const command = {
      command: ['git', 'init', '--quiet', '--initial-branch=main'],
      working_dir: `${containerPaths.workspaces}/${id}`,
      timeout_seconds: initSeconds,
      output_bytes: 16_384,
    }
    const { exit_code, stderr } = await link.send('exec', command, { signal })
    if (exit_code === 0 || exit_code === 127) return null
    return `git: ${stderr.trim().split('\n').at(-1) ?? `exit code ${exit_code}`}`
  }

  async function prepareOne(
    project: ProjectWithContainer,
    id: string,
    progress: (message: string) => void,
    signal: AbortSignal | undefined,
  ): Promise<string | null> {
    if (id === defaultWorkspace && project.remote_url) {
      progress('cloning the remote into the default workspace')
      return await deps.clone(project.id, project.remote_url, signal)
    }
    return project.init_git ? await init(project.id, id, signal) : null
  }

  /**
   * Sets up git in every workspace where that is still to be done. A failure is kept in the row and tried again at the next
   * start; what ends only because the server or the container ends is thrown and stays `preparing`.
   */
  async function prepare(
    project: ProjectWithContainer,
    progress: (message: string) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    for (const { id } of await rows.unpreparedWorkspaces(db, project.id)) {
      signal?.throwIfAborted()
      if (id === defaultWorkspace && project.remote_url) deps.preparing.add(project.id)
      await rows.saveState(db, project.id, id, { state: 'preparing' })
      const error = await prepareOne(project, id, progress, signal).catch((thrown: unknown) => {
        if (thrown instanceof Fault && thrown.kind === 'unavailable') throw thrown
        signal?.throwIfAborted()
        return messageOf(thrown)
      })
      if (error)
        deps.log.warn('failed to prepare workspace', { project_id: project.id, workspace_id: id, error })
      await rows.saveState(db, project.id, id, error ? { state: 'failed', error } : { state: 'ready' })
    }
    deps.preparing.delete(project.id)
  }

  /** Nothing prepares its workspaces any more: the container cannot be started, or was stopped on purpose. */
  async function unprepared(project_id: string, error?: string): Promise<void> {
    await rows.endPreparing(
      db,
      project_id,
      error === undefined ? { state: 'pending' } : { state: 'failed', error },
    )
    deps.preparing.delete(project_id)
  }

  return {
    resolve,
    list,
    remove,
    prepare,
    unprepared,
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
      requireRoom(config, await projects.require(project_id))
      try {
        return await files.writeFile(await rootOf(project_id, id), path, bytes, options)
      } finally {
        // After the write: a measure that is under way may have passed the file already.
        deps.disk.touched(project_id)
      }
    },
    pathInfo: async (project_id: string, id: string | undefined, path: string) =>
      await files.pathInfo(await rootOf(project_id, id), path),
  }
}
export type Workspaces = ReturnType<typeof createWorkspaces>
