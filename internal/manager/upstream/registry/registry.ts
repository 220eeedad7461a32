// The registry of upstream MCP servers. Global ones come from mcp-servers.json or an admin, others belong to a project. A name
// is unique among the global ones and within a project; a project cannot take the name of a global one that it may use.
import type { Caller } from '../../../auth/caller.ts'
import type { Encryption } from '../../../auth/encryption.ts'
import { holdsEverything } from '../../../auth/grant.ts'
import {
  type ServerEntries,
  type ServerEntry,
  serverOfRegistry,
  serversIn,
} from '../../../config/mcp-servers.ts'
import { parseJsonc } from '../../../config/place.ts'
import { Fault, messageOf } from '../../../fault.ts'
import { newUpstreamId } from '../../../ids.ts'
import type { Log } from '../../../log.ts'
import type { Store } from '../../../store/open.ts'
import type { PageRequest } from '../../../store/rows/page.ts'
import { projectById } from '../../../store/rows/projects.ts'
import { toolsOf, type UpstreamToolRow } from '../../../store/rows/upstream/tools.ts'
import {
  deleteUpstream,
  insertUpstream,
  listUpstreams,
  type UpstreamRow,
  updateUpstream,
  upstreamById,
  upstreamByName,
} from '../../../store/rows/upstream/upstreams.ts'
import type { Approvals } from '../../approval/approval.ts'
import { requireProject } from '../../project/require.ts'
import type { Workspaces } from '../../workspace/workspaces.ts'
import type { Catalogs } from '../catalog.ts'
import type { Connections } from '../connection/connections.ts'
import { decryptLiterals, encryptLiterals } from '../connection/secrets.ts'
import type { Definitions } from '../definition/definitions.ts'
import { applyChange, type EntryChange, isAdmin, requireMaySet, shownUpstream } from './settings.ts'

const mostGlobal = 500
const mostOfProject = 50
const importBytes = 256 * 1024
/** How long `add` waits for the first list; a slow server is listed later. */
const firstListMs = 6_000

type Which = { project_id: string | null; name: string }

const unknownServer = (name: string) => new Fault('not_found', `no MCP server "${name}"`)

export function createRegistry(deps: {
  store: Store
  encryption: Encryption
  connections: Connections
  definitions: Definitions
  catalogs: Catalogs
  approvals: Pick<Approvals, 'forgetServer'>
  workspaces: Pick<Workspaces, 'readFile'>
  /** Throws if a project may not use such an upstream: its address, its transport. */
  permit: (project_id: string | null, trusted: boolean, entry: ServerEntry) => Promise<void>
  changed: (row: Pick<UpstreamRow, 'id' | 'project_id' | 'name' | 'settings'>) => void
  log: Log
}) {
  const { store, encryption, connections, definitions } = deps
  const { db } = store

  /** The project that a call is about: a project token that names none means its own. */
  const projectOf = (caller: Caller, project_id: string | undefined): string | null =>
    project_id ?? (caller.scope.kind === 'project' ? caller.scope.project_id : null)

  async function countedOf(row: UpstreamRow, rows?: UpstreamToolRow[]) {
    const present = (rows ?? (await toolsOf(db, row.id))).filter((tool) => tool.present)
    const tools = present.filter(({ status }) => status === 'approved').length
    return shownUpstream({ ...row, tools, unapproved: present.length - tools }, connections.statusOf(row))
  }

  /** One of the project, or a global one that it may use. */
  async function visible({ project_id, name }: Which): Promise<UpstreamRow> {
    const global = await upstreamByName(db, null, name)
    if (project_id === null) {
      if (!global) throw unknownServer(name)
      return global
    }
    const project = await requireProject(db, project_id)
    const mayUse = global && (global.settings.projects === 'all' || project.mcp_servers.includes(name))
    const row = mayUse ? global : await upstreamByName(db, project_id, name)
    if (!row) throw unknownServer(name)
    return row
  }

  /** The one to change; a global one by an admin only. */
  async function changeable(caller: Caller, which: Which): Promise<UpstreamRow> {
    const row = await visible(which)
    if (row.project_id === null && !holdsEverything(caller))
      throw new Fault('forbidden', `MCP server "${row.name}" is global: only an admin may change it`)
    return row
  }

  async function checkName(project_id: string | null, name: string): Promise<void> {
    const global = await upstreamByName(db, null, name)
    if (!global || project_id === null) return
    const project = await projectById(db, project_id)
    if (global.settings.projects === 'all' || project?.mcp_servers.includes(name))
      throw new Fault('conflict', `the project uses a global MCP server named "${name}"`, {
        hint: 'choose another name',
      })
  }

  async function insert(
    caller: { id: string },
    owner: { project_id: string | null; trusted: boolean; source: 'api' | 'file' },
    name: string,
    entry: ServerEntry,
  ): Promise<UpstreamRow> {
    await deps.permit(owner.project_id, owner.trusted, entry)
    await checkName(owner.project_id, name)
    const id = newUpstreamId()
    const { settings, literals } = applyChange(owner, undefined, entry)
    try {
      await insertUpstream(
        store,
        {
          ...owner,
          id,
          name,
          enabled: entry.unsafe ? false : (entry.enabled ?? true),
          settings: JSON.stringify(settings),
          secrets: await encryptLiterals(encryption, id, literals),
          created_by: caller.id,
        },
        owner.project_id === null ? mostGlobal : mostOfProject,
      )
    } catch (error) {
      if (!(error instanceof Fault) || error.kind !== 'conflict') throw error
      throw new Fault('conflict', `an MCP server named "${name}" already exists`, { cause: error })
    }
    const row = (await upstreamById(db, id))!
    deps.changed(row)
    return row
  }

  /** Waits a moment for its first list, so that the answer shows it; its failure is shown too. */
  async function firstList(row: UpstreamRow): Promise<void> {
    if (!row.enabled) return
    const { promise: late, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, firstListMs).unref()
    const listed = definitions.refresh(row.id).catch((error: unknown) =>
      deps.log.info('failed to list the tools of a new MCP server', {
        server: row.name,
        reason: messageOf(error),
      }),
    )
    await Promise.race([listed, late])
    clearTimeout(timer)
  }

  async function add(
    caller: Caller,
    { name, project_id: given, ...entry }: { name: string; project_id?: string } & ServerEntry,
  ) {
    const project_id = projectOf(caller, given)
    if (project_id === null && !holdsEverything(caller))
      throw new Fault('forbidden', 'only an admin may add a global MCP server', { hint: 'give project_id' })
    if (project_id !== null) await requireProject(db, project_id)
    requireMaySet(caller, undefined, entry)
    const owner = { project_id, trusted: isAdmin(caller), source: 'api' as const }
    const row = await insert(caller, owner, name, entry)
    await firstList(row)
    return await countedOf((await upstreamById(db, row.id)) ?? row)
  }

  async function write(row: UpstreamRow, change: EntryChange): Promise<UpstreamRow> {
    const literals = await decryptLiterals(encryption, row)
    const next = applyChange(row, { settings: row.settings, literals }, change)
    await deps.permit(row.project_id, row.trusted, { ...change, ...(next.settings as ServerEntry) })
    await updateUpstream(db, row.id, {
      settings: JSON.stringify(next.settings),
      secrets: await encryptLiterals(encryption, row.id, next.literals),
      ...(change.enabled === undefined ? {} : { enabled: change.enabled }),
    })
    const after = await upstreamById(db, row.id)
    if (!after) throw unknownServer(row.name)
    if (!after.enabled) await connections.drop(row.id)
    deps.changed(after)
    return after
  }

  /** A row of the file as its entry is now: what the entry leaves out is removed. */
  async function replace(row: UpstreamRow, entry: ServerEntry): Promise<void> {
    const { settings, literals } = applyChange(row, undefined, entry)
    await updateUpstream(db, row.id, {
      settings: JSON.stringify(settings),
      secrets: await encryptLiterals(encryption, row.id, literals),
      // An unsafe entry stays as an admin has switched it.
      ...(entry.unsafe && row.settings.unsafe
        ? {}
        : { enabled: entry.unsafe ? false : (entry.enabled ?? true) }),
    })
    const after = await upstreamById(db, row.id)
    if (after && !after.enabled) await connections.drop(row.id)
    deps.changed(after ?? row)
  }

  async function update(
    caller: Caller,
    { name, project_id, ...change }: { name: string; project_id?: string } & EntryChange,
  ) {
    const row = await changeable(caller, { name, project_id: projectOf(caller, project_id) })
    requireMaySet(caller, row, change)
    const isToggle = Object.keys(change).every((field) => field === 'enabled')
    if (row.source === 'file' && !(isToggle && row.settings.unsafe))
      throw new Fault('conflict', `MCP server "${name}" is defined in mcp-servers.json`, {
        hint: 'edit the file; it is reloaded when it changes',
      })
    const after = await write(row, change)
    if (after.enabled) await firstList(after)
    return await countedOf((await upstreamById(db, row.id)) ?? after)
  }

  async function removeRow(row: UpstreamRow): Promise<void> {
    await deleteUpstream(db, row.id)
    definitions.forget(row.id)
    await connections.drop(row.id)
    await deps.approvals.forgetServer(row.id, `MCP server "${row.name}" was removed`)
    deps.changed(row)
  }

  async function remove(caller: Caller, which: { name: string; project_id?: string }) {
    const row = await changeable(caller, { ...which, project_id: projectOf(caller, which.project_id) })
    if (row.source === 'file')
      throw new Fault('conflict', `MCP server "${row.name}" is defined in mcp-servers.json`, {
        hint: 'remove it from the file',
      })
    if (row.trusted && !holdsEverything(caller))
      throw new Fault('forbidden', `an admin added MCP server "${row.name}", and only an admin may remove it`)
    await removeRow(row)
    return { name: row.name, project_id: row.project_id, removed: true as const }
  }

  /** The servers of `.mcp.json` in the default workspace, or of a given document. */
  async function importServers(
    caller: Caller,
    input: { project_id?: string; document?: Record<string, unknown> },
  ) {
    const project_id = projectOf(caller, input.project_id)
    const { entries, problems } = await entriesOf(project_id, input.document)
    const added: string[] = []
    for (const [name, { run: _, ...entry }] of entries) {
      try {
        await add(caller, { name, ...entry, ...(project_id === null ? {} : { project_id }) })
        added.push(name)
      } catch (error) {
        if (!(error instanceof Fault)) throw error
        problems.push(`server "${name}": ${error.message}`)
      }
    }
    return { added, problems }
  }

  async function entriesOf(
    project_id: string | null,
    document: Record<string, unknown> | undefined,
  ): Promise<ServerEntries> {
    if (document && !('mcpServers' in document)) return serverOfRegistry(document)
    if (document) return serversIn(document, 'document')
    if (project_id === null) throw new Fault('invalid', 'give project_id or document')
    const range = { offset: 0, max_bytes: importBytes }
    const { content, truncated } = await deps.workspaces.readFile(project_id, undefined, '.mcp.json', range)
    if (truncated) throw new Fault('invalid', `.mcp.json is larger than ${importBytes} bytes`)
    return serversIn(parseJsonc(content, '.mcp.json'), '.mcp.json')
  }

  return {
    add,
    update,
    remove,
    import: importServers,
    insert,
    write,
    replace,
    removeRow,
    visible: (caller: Caller, which: { name: string; project_id?: string }) =>
      visible({ ...which, project_id: projectOf(caller, which.project_id) }),
    changeable: (caller: Caller, which: { name: string; project_id?: string }) =>
      changeable(caller, { ...which, project_id: projectOf(caller, which.project_id) }),
    async get(caller: Caller, which: { name: string; project_id?: string }) {
      const row = await visible({ ...which, project_id: projectOf(caller, which.project_id) })
      const status = connections.statusOf(row)
      return {
        ...(await countedOf(row)),
        stderr: status.stderr,
        failures: status.failures,
        retry_at: status.retry_at,
        protocol_version: status.protocol_version,
        instructions: row.instructions,
        resources: row.resources,
        resource_templates: row.resource_templates,
        prompts: row.prompts,
      }
    },
    async list(caller: Caller, filter: { project_id?: string } & PageRequest) {
      const project_id = projectOf(caller, filter.project_id)
      const page = await listUpstreams(db, { ...filter, ...(project_id === null ? {} : { project_id }) })
      const servers = page.items.map((row) => shownUpstream(row, connections.statusOf(row)))
      return { servers, next_cursor: page.next_cursor }
    },
  }
}
export type Registry = ReturnType<typeof createRegistry>
