// Copies of files between a caller and a workspace, as tar archives. Copies are counted per project and per server. What a copy
// writes counts against the disk limit of the project while it runs, because the next measurement may be far away.
import type { Config } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import { extractPath, type OpenArchive, packPath } from '../../files/files.ts'
import type { Store } from '../../store/open.ts'
import { averageEntryBytes, diskLimit, requireDiskSpace } from '../disk/limit.ts'
import { requireProject } from '../project/require.ts'
import type { Workspaces } from './workspaces.ts'

type Deps = {
  store: Store
  config: Config
  workspaces: Pick<Workspaces, 'rootOf'>
  disk: { touched(project_id: string): void; requireFree(): void }
}
type Where = { project_id: string; workspace_id: string; path: string }

/** The limit is looked up again after so many bytes. */
const recheckBytes = 64 * 1024 * 1024

function createPlaces({ per_project, per_server }: Config['archives']) {
  const open = new Map<string, number>()
  let all = 0
  const refuse = (whose: string, most: number, setting: string) =>
    new Fault('exhausted', `${most} copies of ${whose} are running, which is the limit`, {
      hint: `wait until one ends; the limit is archives.${setting} in the config`,
      retry_after_seconds: 5,
    })
  return (project_id: string): (() => void) => {
    const own = open.get(project_id) ?? 0
    if (own >= per_project) throw refuse('this project', per_project, 'per_project')
    if (all >= per_server) throw refuse('this server', per_server, 'per_server')
    open.set(project_id, own + 1)
    all += 1
    let held = true
    return () => {
      if (!held) return
      held = false
      all -= 1
      const left = open.get(project_id)! - 1
      if (left > 0) open.set(project_id, left)
      else open.delete(project_id)
    }
  }
}

export function createArchives({ store, config, workspaces, disk }: Deps) {
  const take = createPlaces(config.archives)
  /** Bytes written since the disk use of the project was measured. */
  const written = new Map<string, { measured_at: string | null; bytes: number }>()

  async function room(project_id: string): Promise<number> {
    const project = await requireProject(store.db, project_id)
    requireDiskSpace(config, project)
    disk.requireFree()
    const known = written.get(project_id)
    if (known && known.measured_at !== project.disk_measured_at) written.delete(project_id)
    const bytes = written.get(project_id)?.bytes ?? 0
    written.set(project_id, { measured_at: project.disk_measured_at, bytes })
    return diskLimit(config, project).limit - (project.disk_used_bytes ?? 0) - bytes
  }

  /** Throws `exhausted` for an entry that does not fit any more. */
  async function createCharge(project_id: string) {
    let left = await room(project_id)
    let since = 0
    return async (size_bytes: number): Promise<void> => {
      const cost = Math.max(averageEntryBytes, size_bytes)
      if (cost > left || since > recheckBytes) {
        left = await room(project_id)
        since = 0
      }
      if (cost > left)
        throw new Fault('exhausted', 'the archive exceeds the disk limit of the project (limits.disk_mb)', {
          hint: 'remove files, or have an admin raise limits.disk_mb',
        })
      left -= cost
      since += cost
      const known = written.get(project_id)
      if (known) known.bytes += cost
    }
  }

  return {
    /** Counts until it is closed. */
    async read({ project_id, workspace_id, path }: Where): Promise<OpenArchive> {
      const free = take(project_id)
      try {
        const archive = await packPath(await workspaces.rootOf(project_id, workspace_id), path)
        return {
          ...archive,
          close() {
            archive.close()
            free()
          },
        }
      } catch (error) {
        free()
        throw error
      }
    },
    async write(
      { project_id, workspace_id, path }: Where,
      archive: AsyncIterable<Uint8Array>,
      signal: AbortSignal,
    ) {
      const free = take(project_id)
      try {
        const charge = await createCharge(project_id)
        const root = await workspaces.rootOf(project_id, workspace_id)
        return await extractPath(root, path, archive, { charge, signal })
      } finally {
        free()
        disk.touched(project_id)
      }
    },
  }
}
