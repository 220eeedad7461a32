// The directories of projects and workspaces on the host: creates, checks, repairs, moves aside and deletes them, always through
// `internal/files`. `projects/<id>` is never mounted, so its entries `workspaces` and `home` can be trusted; everything below
// them belongs to the container.
import { mkdir } from 'node:fs/promises'
import { relative } from 'node:path'
import { Fault } from '../../fault.ts'
import { ensureDirectory, type Foreign, moveAside, type Owner } from '../../files/directories.ts'
import type { Trash } from '../../files/trash.ts'
import type { Log } from '../../log.ts'
import type { Layout } from './layout.ts'

export type Tampered = { workspace_id: string; found: Foreign }
export type Repaired = Tampered & { moved_to: string }

const words: Record<Foreign, string> = {
  symlink: 'a symlink',
  file: 'a file',
  fifo: 'a named pipe',
  socket: 'a socket',
  device: 'a device',
  mount: 'a mount of another file system',
}

export const tamperedFault = ({ workspace_id, found }: Tampered): Fault =>
  new Fault('conflict', `workspace ${workspace_id} is not a directory but ${words[found]}`, {
    hint: 'container start with recreate: true moves it aside and creates an empty directory',
  })

type Deps = { layout: Layout; owner: Owner; trash: Trash; log: Log }

export function createDirectories({ layout, owner, trash, log }: Deps) {
  /** Creates what the mounts of a container need; not the workspaces in it. */
  async function ensureProject(project_id: string): Promise<void> {
    const directory = layout.project(project_id)
    await mkdir(directory, { recursive: true, mode: 0o755 })
    for (const name of ['workspaces', 'home']) {
      const ensured = await ensureDirectory(directory, name, owner)
      if (ensured.status === 'foreign')
        throw new Fault('conflict', `${directory}/${name} is not a directory but ${words[ensured.found]}`, {
          hint: 'repair it on the host: no container can change it',
        })
    }
  }

  /** Creates a missing directory again: a droid may delete its own. */
  async function inspect(project_id: string, workspace_id: string): Promise<Tampered | undefined> {
    const parent = layout.workspaces(project_id)
    const ensured = await ensureDirectory(parent, workspace_id, owner).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      // Not created here: outside of the project's queue, that could restore what a delete has just removed.
      throw new Fault('conflict', `project ${project_id} has no directory: it is being created or deleted`, {
        hint: 'try again',
        cause: error,
      })
    })
    return ensured.status === 'foreign' ? { workspace_id, found: ensured.found } : undefined
  }

  async function ensureWorkspace(project_id: string, workspace_id: string): Promise<void> {
    const tampered = await inspect(project_id, workspace_id)
    if (tampered) throw tamperedFault(tampered)
  }

  /** Those of `ids` that are not directories. */
  async function tampered(project_id: string, ids: string[]): Promise<Tampered[]> {
    const found: Tampered[] = []
    for (const id of ids) {
      const one = await inspect(project_id, id)
      if (one) found.push(one)
    }
    return found
  }

  /** Moves what is in the place of a workspace aside: it may be user data. No container of the project runs meanwhile. */
  async function repair(project_id: string, ids: string[]): Promise<Repaired[]> {
    const repaired: Repaired[] = []
    for (const one of await tampered(project_id, ids)) {
      const places = layout.lost(project_id, one.workspace_id)
      const moved_to = await moveAside(layout.workspaces(project_id), one.workspace_id, places)
      await ensureWorkspace(project_id, one.workspace_id)
      if (moved_to === undefined) continue
      log.warn('moved what was in the place of a workspace aside', { project_id, ...one, moved_to })
      repaired.push({ ...one, moved_to: relative(layout.home, moved_to) })
    }
    return repaired
  }

  return {
    ensureProject,
    ensureWorkspace,
    tampered,
    repair,
    /** For a directory in `projects/` without a row: user data is never deleted for lack of a row. */
    async moveToLost(name: string): Promise<void> {
      const moved_to = await moveAside(layout.projects, name, layout.lost(name))
      if (moved_to)
        log.warn('moved the directory of an unknown project aside', { project_id: name, moved_to })
    },
    discardProject: (project_id: string) => trash.discard(layout.projects, project_id),
    discardWorkspace: (project_id: string, workspace_id: string) =>
      trash.discard(layout.workspaces(project_id), workspace_id),
  }
}
export type Directories = ReturnType<typeof createDirectories>
