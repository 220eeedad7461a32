// Working directories of a project: resolved, prepared with git by the container itself, read and written from
// outside without leaving them.
import { chown, mkdir, rm } from 'node:fs/promises'
import type { Caller } from '../auth/caller.ts'
import type { Config, Credential } from '../config.ts'
import { Fault, messageOf, unknown } from '../fault.ts'
import { defaultWorkspace, newWorkspaceId } from '../ids.ts'
import type { Log } from '../log.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Store } from '../store/open.ts'
import type { PageRequest } from '../store/page.ts'
import type { ProjectWithContainer } from '../store/projects.ts'
import * as rows from '../store/workspaces.ts'
import { requireRoom } from './disk/limit.ts'
import * as files from './files.ts'
import { containerPaths, type Layout } from './layout.ts'
import type { Projects } from './projects.ts'

export type WorkspacesDeps = {
  store: Store
  runtime: Runtime
  layout: Layout
  projects: Projects
  credentials: ReadonlyMap<string, Credential>
  owner: { uid: number; gid: number }
  log: Log
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
  prepared_at: row.prepared_at,
  prepare_error: row.prepare_error,
  created_at: row.created_at,
  created_by: row.created_by,
  last_used_at: row.last_used_at,
})

// Reads the user name and the secret from the environment of this one process: not in the URL, not on disk.
const credentialHelper =
  '!f() { echo "username=$OUBLIETTE_GIT_USERNAME"; echo "password=$OUBLIETTE_GIT_PASSWORD"; }; f'
const cloneSeconds = 600

export function createWorkspaces(deps: WorkspacesDeps) {
  const { store, config, layout, projects, runtime } = deps
  const { db } = store

  async function make(project_id: string, id: string, caller_id: string): Promise<void> {
    await rows.insertWorkspace(db, { project_id, id, is_default: false, created_by: caller_id })
    const path = layout.workspace(project_id, id)
    await mkdir(path, { recursive: true, mode: 0o750 })
    if (process.getuid?.() === 0) await chown(path, deps.owner.uid, deps.owner.gid)
  }

  /** No id: the default one, or a new one. A known id: it. An unknown one: made if `create_workspace`, else not found. */
  async function resolve(
    caller: Pick<Caller, 'id'>,
    project_id: string,
    wanted: { workspace_id?: string; create_workspace?: boolean },
  ) {
    const id = wanted.workspace_id ?? (wanted.create_workspace ? newWorkspaceId() : defaultWorkspace)
    const known = await rows.workspaceById(db, project_id, id)
    if (known) return shown(known)
    if (!wanted.create_workspace) throw unknown('workspace', id)
    requireRoom(config, await projects.require(project_id))
    await make(project_id, id, caller.id)
    return shown((await rows.workspaceById(db, project_id, id))!)
  }

  async function rootOf(project_id: string, workspace_id: string | undefined): Promise<files.Root> {
    const project = await projects.require(project_id)
    const id = workspace_id ?? defaultWorkspace
    if (!(await rows.workspaceById(db, project_id, id))) throw unknown('workspace', id)
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
    await rm(layout.workspace(project_id, workspace_id), { recursive: true, force: true })
    await rows.deleteWorkspaceRow(db, project_id, workspace_id)
    deps.disk.touched(project_id)
    // One of the ways out of a limit: what comes next finds the project with room again.
    if (project.disk_state !== 'ok') await deps.disk.measure(project_id)
    return { workspace_id, deleted: true as const }
  }

  async function git(
    project: ProjectWithContainer,
    id: string,
    signal: AbortSignal | undefined,
  ): Promise<string | null> {
    const working_dir = `${containerPaths.workspaces}/${id}`
    const clone = project.remote_url !== null && id === defaultWorkspace
    if (!clone && !project.init_git) return null
    const name = clone
      ? project.credential_refs.find((ref) => deps.credentials.get(ref)?.provider === 'git')
      : undefined
    const credential = name ? deps.credentials.get(name) : undefined
    const command = clone
      ? [
          'git',
          ...(credential ? ['-c', `credential.helper=${credentialHelper}`] : []),
          'clone',
          '--',
          project.remote_url!,
          '.',
        ]
      : ['git', 'init', '--quiet', '--initial-branch=main']
    const { exit_code, stderr, timed_out } = await runtime.exec(project.id, {
      command,
      working_dir,
      env: {
        GIT_TERMINAL_PROMPT: '0',
        ...(credential && {
          OUBLIETTE_GIT_USERNAME: credential.username ?? 'x-access-token',
          OUBLIETTE_GIT_PASSWORD: credential.key.reveal(),
        }),
      },
      timeout_seconds: cloneSeconds,
      output_bytes: 16_384,
      signal,
    })
    if (exit_code === 0) return null
    // An image without git is no reason to refuse a workspace, unless something had to be cloned.
    if (exit_code === 127 && !clone) return null
    return timed_out
      ? `git took longer than ${cloneSeconds} s`
      : `git: ${stderr.trim().split('\n').at(-1) ?? `exit code ${exit_code}`}`
  }

  /** Sets up git in every workspace where that is still to be done. A failure is kept in the row and tried again. */
  async function prepare(
    project: ProjectWithContainer,
    progress: (message: string) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    for (const { id } of await rows.unpreparedWorkspaces(db, project.id)) {
      signal?.throwIfAborted()
      if (project.remote_url && id === defaultWorkspace)
        progress('cloning the remote into the default workspace')
      const error = await git(project, id, signal).catch(messageOf)
      if (error)
        deps.log.warn('workspace is not prepared', { project_id: project.id, workspace_id: id, error })
      await rows.savePrepared(db, project.id, id, error)
    }
  }

  return {
    resolve,
    list,
    remove,
    prepare,
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
      deps.disk.touched(project_id)
      return await files.writeFile(await rootOf(project_id, id), path, bytes, options)
    },
    pathInfo: async (project_id: string, id: string | undefined, path: string) =>
      await files.pathInfo(await rootOf(project_id, id), path),
  }
}
export type Workspaces = ReturnType<typeof createWorkspaces>
