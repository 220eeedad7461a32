// mcp-servers.json as rows: read at the start and whenever the file changes. A file that cannot be parsed changes nothing; an
// invalid entry does not affect the others. The API shows these rows and does not change them.
import {
  findServersFile,
  parseServers,
  type ServerEntry,
  watchServersFile,
} from '../../../config/mcp-servers.ts'
import { messageOf } from '../../../fault.ts'
import { canonicalJson } from '../../../lib/canonical-json.ts'
import type { Log } from '../../../log.ts'
import type { Store } from '../../../store/open.ts'
import { fileUpstreams } from '../../../store/rows/upstream/upstreams.ts'
import type { Registry } from './registry.ts'

const by = { id: 'mcp-servers.json' }
const owner = { project_id: null, trusted: true, source: 'file' as const }

export function createServersFile(deps: {
  store: Store
  registry: Pick<Registry, 'insert' | 'replace' | 'removeRow'>
  /** The first one that has the file counts. */
  directories: readonly string[]
  log: Log
}) {
  const { log } = deps
  /** The entries as they were applied last: an unchanged one is not written again. */
  const applied = new Map<string, string>()
  let syncing: Promise<void> = Promise.resolve()

  async function apply(name: string, entry: ServerEntry, known: Awaited<ReturnType<typeof fileUpstreams>>) {
    const text = canonicalJson(entry)
    const row = known.find((one) => one.name === name)
    if (row && applied.get(name) === text) return
    if (!row) await deps.registry.insert(by, owner, name, entry)
    // An unsafe entry stays as an admin has switched it.
    else await deps.registry.replace(row, entry)
    applied.set(name, text)
  }

  async function sync(): Promise<void> {
    const file = findServersFile(deps.directories)
    const { entries, problems } = file
      ? parseServers(file.content, file.path)
      : { entries: new Map<string, ServerEntry>(), problems: [] }
    for (const problem of problems) log.warn(problem)
    const known = await fileUpstreams(deps.store.db)
    for (const [name, entry] of entries)
      await apply(name, entry, known).catch((error: unknown) =>
        log.warn('failed to add an MCP server', { server: name, file: file?.path, reason: messageOf(error) }),
      )
    for (const row of known.filter(({ name }) => !entries.has(name))) {
      await deps.registry.removeRow(row)
      applied.delete(row.name)
    }
    if (file) log.info('read the MCP servers', { file: file.path, servers: entries.size })
  }

  const read = (): Promise<void> => {
    syncing = syncing
      .then(sync)
      .catch((error: unknown) =>
        log.error('failed to read the MCP servers; the known ones stay', { reason: messageOf(error) }),
      )
    return syncing
  }
  let stop: () => void = () => undefined

  return {
    async start(): Promise<void> {
      await read()
      stop = watchServersFile(deps.directories, () => void read())
    },
    async close(): Promise<void> {
      stop()
      await syncing
    },
  }
}
