// Other MCP servers for droids and callers: what a project may use, what of it is approved, and the calls. Connections are below
// (`internal/upstream`); questions go to the approval inbox; the door above decides who may ask.
import type { Caller } from '../../auth/caller.ts'
import { createEncryption, encryptionKey } from '../../auth/encryption.ts'
import type { Config } from '../../config/load.ts'
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import { isFinal } from '../../protocol/session-status.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import { sessionById } from '../../store/rows/session/sessions.ts'
import { hasTrigrams } from '../../store/rows/upstream/tools.ts'
import {
  projectsUsing,
  saveObserved,
  type UpstreamRow,
  upstreamById,
  upstreamsOfProject,
} from '../../store/rows/upstream/upstreams.ts'
import type { Upstreams } from '../../upstream/upstream.ts'
import type { ApprovalInbox } from '../approval/approvals.ts'
import { decide } from '../approval/policy.ts'
import type { SchemaCheck } from '../caller/tools.ts'
import type { Committed } from '../events/log-writer.ts'
import type { Layout } from '../workspace/layout.ts'
import type { Workspaces } from '../workspace/workspaces.ts'
import { createCalls, type From, type How } from './call/calls.ts'
import { createCallLog } from './call/log.ts'
import { createCatalogs, type Offer } from './catalog.ts'
import { createBoundary } from './connection/boundary.ts'
import { createConnections } from './connection/connections.ts'
import { createConsents } from './connection/consent.ts'
import { createSpecOf } from './connection/spec.ts'
import { createStartStdio } from './connection/stdio.ts'
import { createDefinitions } from './definition/definitions.ts'
import { createServersFile } from './registry/file.ts'
import { createRegistry } from './registry/registry.ts'
import { createToolSearch } from './search.ts'

type Deps = {
  home: string
  config: Config
  store: Store
  log: Log
  upstreams: Upstreams
  approvals: ApprovalInbox
  schema: SchemaCheck
  workspaces: Workspaces
  toolsChanged: Relay['toolsChanged']
  runtime: Runtime
  layout: Layout
  owner: { uid: number; gid: number }
  /** Directories that may have mcp-servers.json, in this order. */
  directories: readonly string[]
  redirect_url: string
}

export function createGateway(deps: Deps) {
  const { config, store, log, approvals } = deps
  const { db } = store
  const encryption = createEncryption(encryptionKey(deps.home))

  const boundary = createBoundary(deps)
  const stdio = createStartStdio(deps)
  const specOf = createSpecOf({
    ...deps,
    fetchFor: boundary.fetchFor,
    startStdio: stdio.start,
    encryption,
    env: process.env,
    secretOf: async () => undefined,
    readOAuth: async (id) => (await upstreamById(db, id))?.oauth ?? null,
    writeOAuth: async (id, oauth) => await saveObserved(db, id, { oauth }),
  })
  const connections = createConnections({ store, upstreams: deps.upstreams, specOf, log })
  const catalogs = createCatalogs({ store })
  const callLog = createCallLog({ store, log })

  /** The lists of the droids that may see this upstream are no longer valid. */
  function changed(row: Pick<UpstreamRow, 'id' | 'project_id' | 'name' | 'settings'>): void {
    catalogs.forget(row.id)
    calls.forget(row.id)
    projectsUsing(db, row).then(
      (ids) => {
        for (const project_id of ids) deps.toolsChanged(project_id)
      },
      (error: unknown) =>
        log.warn('failed to announce changed tools', { server: row.name, reason: messageOf(error) }),
    )
  }
  const definitions = createDefinitions({
    store,
    connections,
    approvals,
    log,
    changed: (id) =>
      void upstreamById(db, id).then(
        (row) => row && changed(row),
        (error: unknown) =>
          log.warn('failed to read an MCP server', { upstream_id: id, reason: messageOf(error) }),
      ),
  })
  const registry = createRegistry({
    ...deps,
    encryption,
    connections,
    definitions,
    catalogs,
    permit: boundary.permit,
    changed,
  })
  const trusts = (row: UpstreamRow) =>
    config.approvals.trust_annotations === 'all' ||
    (config.approvals.trust_annotations === 'admin' && row.trusted)
  const calls = createCalls({
    ...deps,
    connections,
    calls: callLog,
    decide: ({ tool, upstream, from, overrides }) =>
      decide(
        {
          tool,
          server_id: upstream.id,
          project_id: from.project_id,
          trusted: trusts(upstream),
          autonomy: from.autonomy,
        },
        overrides,
        config.approvals,
      ),
    max_result_bytes: config.gateway.max_result_bytes,
    rate: { per_second: config.gateway.calls_per_second, burst: config.gateway.calls_burst },
  })
  const file = createServersFile({ store, registry, directories: deps.directories, log })
  const search = createToolSearch({ db, trigrams: () => hasTrigrams(db) })

  connections.subscribe(({ id, list_changed }) => {
    if (list_changed) definitions.announced(id)
  })

  const consents = createConsents({
    store,
    connections,
    approvals,
    log,
    authorized: (id) =>
      void definitions.refresh(id).catch((error: unknown) =>
        log.warn('failed to list the tools of an MCP server', {
          upstream_id: id,
          reason: messageOf(error),
        }),
      ),
  })

  /** The catalog of a project; lists that have expired are refreshed behind it. */
  async function catalogOf(project_id: string) {
    const catalog = await catalogs.of(project_id)
    for (const upstream of catalog.upstreams) definitions.touch(upstream)
    return catalog
  }

  /** A tool of one upstream by its own name or its visible one, for callers. */
  async function offerOf(row: UpstreamRow, name: string): Promise<Offer> {
    if (!row.enabled)
      throw new Fault('conflict', `MCP server "${row.name}" is disabled`, {
        hint: 'enable it with mcp_server update',
      })
    let tools = await catalogs.toolsOf(row)
    if (row.discovered_at === null) tools = await catalogs.toolsOf(await definitions.refresh(row.id))
    const tool = tools.find((one) => one.present && (one.name === name || one.visible_name === name))
    if (!tool)
      throw new Fault('not_found', `MCP server "${row.name}" has no tool "${name}"`, {
        hint: 'mcp_server tools lists them',
      })
    if (tool.status !== 'approved')
      throw new Fault(
        'forbidden',
        `tool "${name}" of MCP server "${row.name}" is not approved: it is ${tool.status === 'changed' ? 'different from what was approved' : 'new'}`,
        {
          hint: 'look at it with mcp_server tools, and approve it with mcp_server approve_tools',
        },
      )
    definitions.touch(row)
    return { upstream: row, tool }
  }

  const fairKey = (from: Pick<From, 'session_id' | 'caller_id'>) => from.session_id ?? from.caller_id

  return {
    registry,
    definitions,
    catalogOf,
    offerOf,
    search,
    call: calls.call,
    autonomyOf: async (session_id: string) => (await sessionById(db, session_id))?.autonomy_level ?? 'off',
    /** Above this number of tools some agents get a search instead of the list. */
    find_tools_above: config.gateway.find_tools_above,
    /** Whether this droid loads every definition: Claude Code and Droid defer them, a shell has no prompt. */
    needsSearch: (droid: string): boolean => {
      const entry = config.droids[droid]
      if (entry?.kind === 'shell' || (entry === undefined && droid === 'shell')) return false
      return entry?.agent !== 'claude' && entry?.agent !== 'droid'
    },
    async tools(caller: Caller, which: { name: string; project_id?: string }) {
      const row = await registry.visible(caller, which)
      const known = row.discovered_at === null && row.enabled ? await definitions.refresh(row.id) : row
      definitions.touch(known)
      return { row: known, tools: (await catalogs.toolsOf(known)).filter(({ present }) => present) }
    },
    async readResource(row: UpstreamRow, uri: string, from: From, how: How) {
      const upstreams = await connections.use(row)
      await how.intent
      return await upstreams.readResource(row.id, uri, { signal: how.signal, fair_key: fairKey(from) })
    },
    async getPrompt(row: UpstreamRow, name: string, args: Record<string, unknown>, from: From, how: How) {
      const upstreams = await connections.use(row)
      await how.intent
      const texts = Object.fromEntries(Object.entries(args).map(([key, value]) => [key, String(value)]))
      return await upstreams.getPrompt(
        row.id,
        { name, arguments: texts },
        { signal: how.signal, fair_key: fairKey(from) },
      )
    },
    async restart(row: UpstreamRow): Promise<void> {
      if (!row.enabled)
        throw new Fault('conflict', `MCP server "${row.name}" is disabled`, {
          hint: 'enable it with mcp_server update',
        })
      await (await connections.use(row)).restart(row.id)
      await definitions.refresh(row.id)
    },
    async authorize(row: UpstreamRow) {
      if (row.settings.transport === 'stdio')
        throw new Fault('invalid', 'a stdio server has no OAuth authorization')
      // The first consent of a server decides that it uses OAuth.
      const known = row.settings.oauth
        ? row
        : await registry.write(row, { oauth: { grant: 'authorization_code' } })
      return await consents.begin(known)
    },
    finishConsent: consents.finish,
    /** Where a project's `mcp_servers`, network or deletion changed what its droids see. */
    async projectChanged(project_id: string): Promise<void> {
      catalogs.forget()
      // Their boundary may be another one: they connect again with it.
      for (const { id, trusted } of await upstreamsOfProject(db, project_id))
        if (!trusted) await connections.drop(id)
      deps.toolsChanged(project_id)
    },
    /** Before a project is deleted: its rows are deleted with it. */
    async projectDeleted(project_id: string): Promise<void> {
      for (const { id } of await upstreamsOfProject(db, project_id)) await connections.drop(id)
      catalogs.forget()
    },
    onCommit({ rows }: Committed): void {
      const ended = rows.filter(({ status }) => isFinal(status)).map(({ id }) => id)
      if (ended.length > 0)
        callLog
          .cancelOf(ended)
          .catch((error: unknown) =>
            log.warn('failed to cancel calls of MCP tools', { reason: messageOf(error) }),
          )
    },
    sweep: callLog.expire,
    async start(): Promise<void> {
      await stdio.sweep()
      await callLog.abandon()
      await file.start()
    },
    async close(): Promise<void> {
      await file.close()
      consents.close()
      await connections.close()
      await boundary.close()
      await definitions.close()
      await callLog.close()
    },
  }
}
