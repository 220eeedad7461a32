// What upstreams offer, as last discovered, and which of it is approved. The first list of an upstream that an admin added is
// approved with it; afterwards a changed tool is quarantined alone, and a new one waits. Lists are refreshed when they expire
// or when the upstream announces a change, in the background: nobody waits for an upstream to list tools.
import { Fault, messageOf } from '../../../fault.ts'
import { createKeyedQueue } from '../../../lib/keyed-queue.ts'
import type { Log } from '../../../log.ts'
import type { Store } from '../../../store/open.ts'
import type { ToolStatus } from '../../../store/rows/upstream/tables.ts'
import {
  approveTools,
  forgetAbsent,
  markAbsent,
  type NewUpstreamTool,
  saveTools,
  setApproval,
  type ToolTexts,
  toolsOf,
  type UpstreamToolRow,
} from '../../../store/rows/upstream/tools.ts'
import {
  lockUpstream,
  saveObserved,
  type UpstreamRow,
  upstreamById,
} from '../../../store/rows/upstream/upstreams.ts'
import type { Discovered, UpstreamTool } from '../../../upstream/upstream.ts'
import type { Approvals } from '../../approval/approval.ts'
import type { Connections } from '../connection/connections.ts'
import { visibleName } from '../names.ts'
import { differences, hiddenCharacters, pinOf, resembles } from './pin.ts'

const mostTools = 1000
const definitionBytes = 64 * 1024
const listBytes = 4 * 1024 * 1024
const keptAbsent = 200
/** Of resources, templates and prompts. */
const otherBytes = 256 * 1024
const defaultSeconds = 300
const longestSeconds = 86_400
/** An upstream that announces changes all the time is asked at most this often. */
const pauseMs = 5_000
const mostQuestions = 50

/** JSON that PostgreSQL cannot store: NUL characters and halves of surrogate pairs. */
const isUnstorable = (text: string): boolean => /\\u(?:0000|d[89a-f][0-9a-f]{2})/i.test(text)

const spaced = (name: string) => name.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replace(/[^\p{L}\p{N}]+/gu, ' ')

export function textsOf(tool: UpstreamTool): ToolTexts {
  const properties = (tool.inputSchema.properties ?? {}) as Record<string, { description?: unknown } | null>
  return {
    name: `${spaced(tool.name)} ${tool.title ?? ''}`,
    description: String(tool.description ?? '').slice(0, 8000),
    parameters: Object.entries(properties)
      .map(
        ([name, schema]) =>
          `${spaced(name)} ${typeof schema?.description === 'string' ? schema.description : ''}`,
      )
      .join(' ')
      .slice(0, 8000),
  }
}

/** The tools within the limits; a hostile list must not fill the database or the prompts. */
export function admissible(tools: UpstreamTool[]): { tools: UpstreamTool[]; skipped: string[] } {
  const kept = new Map<string, UpstreamTool>()
  const skipped: string[] = []
  let bytes = 0
  for (const tool of tools) {
    const text = JSON.stringify(tool)
    bytes += text.length
    const reason =
      typeof tool.name !== 'string' || tool.name === '' || tool.name.length > 200
        ? 'its name is empty or longer than 200 characters'
        : kept.has(tool.name)
          ? 'its name is listed twice'
          : text.length > definitionBytes
            ? `its definition is larger than ${definitionBytes} bytes`
            : isUnstorable(text)
              ? 'its definition contains characters that cannot be stored'
              : tool.inputSchema?.type !== 'object'
                ? 'its inputSchema is not an object'
                : kept.size >= mostTools
                  ? `the server lists more than ${mostTools} tools`
                  : bytes > listBytes
                    ? `the list is larger than ${listBytes} bytes`
                    : undefined
    if (reason === undefined) kept.set(tool.name, tool)
    else if (skipped.length < 20) skipped.push(`${String(tool.name).slice(0, 80)}: ${reason}`)
  }
  return { tools: [...kept.values()], skipped }
}

const bounded = (list: Record<string, unknown>[]): string => {
  const text = JSON.stringify(list)
  return text.length > otherBytes || isUnstorable(text) ? '[]' : text
}

/** The rows of one list, given what is known. Pure: the rules of approval are here. */
export function decide(
  upstream: Pick<UpstreamRow, 'id' | 'name' | 'trusted' | 'settings' | 'created_by'>,
  first: boolean,
  identity: Discovered['identity'],
  tools: UpstreamTool[],
  known: UpstreamToolRow[],
): { changed: NewUpstreamTool[]; absent: string[] } {
  const at = new Date().toISOString()
  const before = new Map(known.map((row) => [row.name, row]))
  const listed = new Set(tools.map(({ name }) => name))
  const vanished = known.filter((row) => !listed.has(row.name) && row.approved_definition)
  const changed: NewUpstreamTool[] = []
  for (const tool of tools) {
    const pin = pinOf(tool, identity)
    const row = before.get(tool.name)
    if (row && row.pin === pin && row.present) continue
    const hidden = hiddenCharacters(tool)
    const twin = row?.approved_pin ? undefined : vanished.find((old) => resembles(old.definition, tool))
    const reads = tool.annotations?.readOnlyHint === true && upstream.settings.auto_approve === 'read_only'
    const isApproved =
      row?.approved_pin === pin ||
      (upstream.trusted && hidden.length === 0 && !twin && !row?.approved_pin && (first || reads))
    const status: ToolStatus = isApproved ? 'approved' : row?.approved_pin || twin ? 'changed' : 'pending'
    const isNewlyApproved = isApproved && row?.approved_pin !== pin
    changed.push({
      upstream_id: upstream.id,
      name: tool.name,
      visible_name: visibleName(upstream.name, tool.name),
      definition: JSON.stringify(tool),
      pin,
      status,
      present: true,
      approved_definition: isApproved
        ? JSON.stringify(tool)
        : row?.approved_definition
          ? JSON.stringify(row.approved_definition)
          : null,
      approved_pin: isApproved ? pin : (row?.approved_pin ?? null),
      approved_by: isNewlyApproved ? upstream.created_by : (row?.approved_by ?? null),
      approved_at: isNewlyApproved ? at : (row?.approved_at ?? null),
      resembles: status === 'changed' ? (twin?.name ?? null) : null,
      approval_id: null,
      hidden_characters: JSON.stringify(hidden),
      changed_at: at,
    })
  }
  return {
    changed,
    absent: known.filter((row) => row.present && !listed.has(row.name)).map(({ name }) => name),
  }
}

export function createDefinitions(deps: {
  store: Store
  connections: Connections
  approvals: Pick<Approvals, 'post' | 'resolve' | 'onDecided'>
  /** The tools that droids can see may have changed. */
  changed: (upstream_id: string) => void
  log: Log
}) {
  const { store, connections, approvals, log } = deps
  const { db } = store
  const serial = createKeyedQueue()
  const running = new Map<string, Promise<UpstreamRow>>()
  const announced = new Map<string, { timer: NodeJS.Timeout }>()
  const refreshed = new Map<string, number>()

  async function save(row: UpstreamRow, found: Discovered): Promise<boolean> {
    const { tools, skipped } = admissible(found.tools)
    if (skipped.length > 0) log.warn('skipped tools of an MCP server', { server: row.name, skipped })
    const identity = {
      ...found.identity,
      name: String(found.identity.name),
      version: String(found.identity.version),
    }
    const seconds = Math.min(
      longestSeconds,
      found.ttl_ms === null ? defaultSeconds : Math.max(1, found.ttl_ms / 1000),
    )
    return await store.transact(async (trx) => {
      const locked = await lockUpstream(trx, row.id)
      if (!locked) return false
      const known = await toolsOf(trx, row.id)
      const first = locked.discovered_at === null
      const { changed, absent } = decide(locked, first, identity, tools, known)
      const byName = new Map(tools.map((tool) => [tool.name, tool]))
      await saveTools(
        trx,
        changed.map((tool) => ({ ...tool, texts: textsOf(byName.get(tool.name)!) })),
      )
      await markAbsent(trx, row.id, absent)
      await forgetAbsent(trx, row.id, keptAbsent)
      const identityText = JSON.stringify(identity)
      await saveObserved(trx, row.id, {
        identity: isUnstorable(identityText) || identityText.length > 8000 ? null : identityText,
        instructions: found.instructions?.replaceAll('\0', '').toWellFormed().slice(0, 20_000) ?? null,
        capabilities: bounded([found.capabilities]).slice(1, -1) || null,
        resources: bounded(found.resources),
        resource_templates: bounded(found.resource_templates),
        prompts: bounded(found.prompts),
        discovered_at: new Date().toISOString(),
        fresh_until: new Date(Date.now() + seconds * 1000).toISOString(),
      })
      return changed.length > 0 || absent.length > 0
    })
  }

  /** Asks for every tool that is not approved and about which nothing is asked yet. */
  async function ask(row: UpstreamRow): Promise<void> {
    const open = (await toolsOf(db, row.id)).filter((tool) => tool.status !== 'approved' && tool.present)
    for (const tool of open.filter(({ approval_id }) => approval_id === null).slice(0, mostQuestions)) {
      const before =
        tool.approved_definition ??
        (tool.resembles === null
          ? null
          : ((await toolsOf(db, row.id)).find(({ name }) => name === tool.resembles)?.definition ?? null))
      const { approval_id } = await approvals.post({
        kind: 'definition',
        session_id: null,
        project_id: row.project_id,
        server: row.name,
        server_id: row.id,
        tool: tool.name,
        key: `${row.id} ${tool.name} ${tool.pin}`,
        change: {
          status: tool.status === 'changed' ? 'changed' : 'new',
          pin: tool.pin,
          before: small(before),
          after: small(tool.definition),
          differences: clipped(before === null ? [] : differences(before, tool.definition)),
          ...(tool.resembles === null ? {} : { resembles: tool.resembles }),
          ...(tool.hidden_characters.length > 0 ? { hidden_characters: tool.hidden_characters } : {}),
          description: String(tool.definition.description ?? '').slice(0, 4000),
        },
      })
      await setApproval(db, row.id, tool.name, approval_id)
    }
  }

  async function discover(id: string): Promise<UpstreamRow> {
    const row = await upstreamById(db, id)
    if (!row) throw new Fault('not_found', 'the server was removed')
    refreshed.set(id, Date.now())
    const found = await (await connections.use(row)).discover(id)
    const differs = await serial(id, () => save(row, found))
    if (differs) deps.changed(id)
    await ask(row).catch((error: unknown) =>
      log.warn('failed to ask for the approval of tools', { server: row.name, reason: messageOf(error) }),
    )
    return (await upstreamById(db, id)) ?? row
  }

  /** Concurrent calls share one. */
  function refresh(id: string): Promise<UpstreamRow> {
    const before = running.get(id)
    if (before) return before
    const now = discover(id).finally(() => running.delete(id))
    running.set(id, now)
    return now
  }

  const inBackground = (id: string): void =>
    void refresh(id).catch((error: unknown) =>
      log.debug('failed to list the tools of an MCP server', { upstream_id: id, reason: messageOf(error) }),
    )

  approvals.onDecided('definition', async (trx, approval) => {
    const { server_id, tool, detail, status, decided_by } = approval
    const pin = (detail.change as { pin?: unknown } | undefined)?.pin ?? detail.pin
    if (server_id === null || tool === null || typeof pin !== 'string' || status !== 'allowed') return
    await approveTools(trx, server_id, [{ name: tool, pin }], decided_by ?? 'unknown')
    // The transaction is committed shortly; the lists that are kept in memory expire by themselves.
    setTimeout(() => deps.changed(server_id), 250).unref()
  })

  return {
    refresh,
    /** Lists that have expired are refreshed without waiting. */
    touch(row: Pick<UpstreamRow, 'id' | 'fresh_until'>): void {
      const isFresh = row.fresh_until !== null && Date.parse(row.fresh_until) > Date.now()
      const last = refreshed.get(row.id) ?? 0
      if (!isFresh && !running.has(row.id) && Date.now() - last > pauseMs) inBackground(row.id)
    },
    /** The upstream says that its lists have changed. */
    announced(id: string): void {
      if (announced.has(id)) return
      const wait = Math.max(100, (refreshed.get(id) ?? 0) + pauseMs - Date.now())
      const timer = setTimeout(() => {
        announced.delete(id)
        inBackground(id)
      }, wait).unref()
      announced.set(id, { timer })
    },
    async approve(row: UpstreamRow, names: string[] | undefined, by: string): Promise<string[]> {
      const tools = await toolsOf(db, row.id)
      const wanted = tools.filter(
        (tool) => tool.present && tool.status !== 'approved' && (names?.includes(tool.name) ?? true),
      )
      const missing = names?.filter((name) => !tools.some((tool) => tool.name === name && tool.present))
      if (missing && missing.length > 0)
        throw new Fault('not_found', `server "${row.name}" has no tool "${missing[0]}"`)
      const approved = await approveTools(db, row.id, wanted, by)
      for (const tool of approved)
        await approvals.resolve(
          { kind: 'definition', server_id: row.id, tool },
          { status: 'allowed', reason: null, decided_by: by },
        )
      if (approved.length > 0) deps.changed(row.id)
      return approved
    },
    forget(id: string): void {
      refreshed.delete(id)
      clearTimeout(announced.get(id)?.timer)
      announced.delete(id)
    },
    async close(): Promise<void> {
      for (const { timer } of announced.values()) clearTimeout(timer)
      await Promise.allSettled(running.values())
    },
  }
}
export type Definitions = ReturnType<typeof createDefinitions>

/** Within what an approval can hold: the differences remain if a definition is too large. */
const small = (definition: Record<string, unknown> | null) =>
  definition !== null && JSON.stringify(definition).length <= 12_000 ? definition : null

function clipped(changes: ReturnType<typeof differences>) {
  const clip = (value: unknown) => {
    const text = JSON.stringify(value)
    return text.length > 2000 ? `${text.slice(0, 2000).toWellFormed()}…` : value
  }
  return changes
    .slice(0, 5)
    .map(({ field, before, after }) => ({ field, before: clip(before), after: clip(after) }))
}
