// What has the label of this instance, or is in its directories, and belongs to no project. `seen` must be listed before the ids
// of the projects are read: everything is created after its row, so what was listed before and has no row is an orphan.
import { join } from 'node:path'
import type { Owned } from '../../runtime/runtime.ts'
import type { Layout } from '../workspace/layout.ts'

/** `projects` and `sockets` are the names in these directories of the home. */
export type Seen = { engine: Owned[]; projects: string[]; sockets: string[] }

type Orphans = {
  /** Project ids of containers, networks and volumes. */
  in_engine: string[]
  /** Paths of directories of sockets. */
  sockets: string[]
  /** Names of directories of projects. */
  directories: string[]
}

export function orphansOf(seen: Seen, known: ReadonlySet<string>, layout: Layout): Orphans {
  const sockets = new Set([...known].map((id) => layout.socketDir(id)))
  return {
    in_engine: [...new Set(seen.engine.map(({ project_id }) => project_id))].filter((id) => !known.has(id)),
    sockets: seen.sockets.map((name) => join(layout.sockets, name)).filter((path) => !sockets.has(path)),
    directories: seen.projects.filter((name) => !known.has(name) && !name.startsWith('.')),
  }
}
