// What a backup contains besides the database: the files of the home, and on request the directories of the projects.
import { createReadStream } from 'node:fs'
import { lstat, mkdir, open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { extractTree } from '../../../internal/files/archive/extract.ts'
import type { Skipped } from '../../../internal/files/archive/notes.ts'
import { packTree } from '../../../internal/files/archive/pack.ts'
import { openDirectory } from '../../../internal/files/handles.ts'
import { isRoot } from '../../../internal/lib/is-root.ts'
import { containerUser } from '../../../internal/manager/container/user.ts'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import type { Snapshot } from '../../../internal/store/backup/snapshot.ts'
import type { Source } from './write-archive.ts'

/** State of a running process, which another home must not have. Everything else in the top directory is copied. */
const ownFiles = /^(?:lock|daemon\.json|in-flight|restore-incomplete|\..*|.*\.new|.*\.partial)$/
/** What a container can write. */
const projectParts = ['workspaces', 'home']

export function tableSources(snapshot: Snapshot): Source[] {
  return snapshot.tables.map((table): Source => {
    let rows = 0
    return {
      kind: 'table',
      name: table.name,
      columns: table.columns,
      async *open() {
        const copy = snapshot.read(table)
        yield* copy as AsyncIterable<Uint8Array>
        rows = copy.rowCount
      },
      rows: () => rows,
    }
  })
}

/** Config, keys and tokens: all regular files in the top directory of the home. */
export async function homeSources(home: string, except: string[] = []): Promise<Source[]> {
  const entries = await readdir(home, { withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile() && !ownFiles.test(entry.name) && /^[A-Za-z0-9._-]+$/.test(entry.name))
    .filter(({ name }) => !except.includes(join(home, name)) && !/\.tar(\.gz)?$/.test(name))
    .map(({ name }) => ({ kind: 'home', name, open: () => createReadStream(join(home, name)) }))
}

/** `skipped` gets what could not be copied. */
export async function projectSources(home: string, skipped: (left_out: Skipped) => void): Promise<Source[]> {
  const { projects } = layoutOf(home)
  const found = await readdir(projects, { withFileTypes: true }).catch(() => [])
  const names = found.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
  return names.map(({ name }) => ({
    kind: 'project',
    name,
    async *open() {
      // A project may be deleted meanwhile.
      const stats = await lstat(join(projects, name)).catch(() => undefined)
      if (!stats) return
      const { stream, packed } = packTree({ path: join(projects, name), stats }, name, {
        one_file_system: true,
      })
      yield* stream
      skipped(packed().skipped)
    },
  }))
}

/** Below `projects/<name>`, owned by the user of containers. */
export async function restoreProject(
  home: string,
  name: string,
  archive: AsyncIterable<Buffer>,
  options: { container_uid: number | undefined; signal: AbortSignal },
): Promise<number> {
  const directory = layoutOf(home).project(name)
  await mkdir(directory, { recursive: true, mode: 0o755 })
  const base = await openDirectory(directory)
  const self = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  try {
    const { files } = await extractTree(archive, base, {
      signal: options.signal,
      ...(isRoot() ? { owner: containerUser(options.container_uid, self) } : {}),
      // The top directory is that of the project, and its other files are made by the server.
      place: ([, ...inner]) => (projectParts.includes(inner[0] ?? '') ? inner : undefined),
    })
    return files
  } finally {
    await base.close()
  }
}

/** Private, and on disk before it counts. */
export async function writePrivate(file: string, content: Buffer | string): Promise<void> {
  const handle = await open(file, 'wx', 0o600)
  try {
    await handle.writeFile(content)
    await handle.sync()
  } finally {
    await handle.close()
  }
}
