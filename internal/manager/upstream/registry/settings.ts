// From what a caller or a file gives to what is stored, and from what is stored to what is shown. Who may set what is decided
// here: an admin bounds a project, a project token stays within its project.
import type { Caller } from '../../../auth/caller.ts'
import { holdsEverything } from '../../../auth/grant.ts'
import type { ServerEntry } from '../../../config/mcp-servers.ts'
import { Fault } from '../../../fault.ts'
import type { UpstreamSettings } from '../../../store/rows/upstream/tables.ts'
import type { UpstreamRow } from '../../../store/rows/upstream/upstreams.ts'
import type { UpstreamStatus } from '../../../upstream/upstream.ts'
import { checkReferences, type Literals, splitValues } from '../connection/secrets.ts'

export type EntryChange = Partial<Omit<ServerEntry, 'run'>>

/** An admin who is not a session: what it adds is trusted. */
export const isAdmin = (caller: Caller): boolean => holdsEverything(caller) && !caller.session_id

const ofConnection = [
  'transport',
  'command',
  'args',
  'env',
  'image',
  'network',
  'workspace',
  'url',
  'headers',
  'oauth',
  'client_secret',
] as const
const ofAdmin = ['projects', 'unsafe', 'auto_approve'] as const
/** What weakens or strengthens the approval of calls: a droid must not change it for itself. */
const notOfSessions = ['policy', 'auto_approve'] as const

/** Throws `forbidden` for the first field that this caller may not set. `before` is undefined for a new one. */
export function requireMaySet(
  caller: Caller,
  before: Pick<UpstreamRow, 'trusted'> | undefined,
  change: EntryChange,
): void {
  const has = (field: keyof EntryChange) => change[field] !== undefined
  const refuse = (field: string, reason: string) => new Fault('forbidden', `mcp_server: ${field}: ${reason}`)
  if (caller.session_id)
    for (const field of notOfSessions) if (has(field)) throw refuse(field, 'a session cannot set it')
  if (isAdmin(caller)) return
  for (const field of ofAdmin) if (has(field)) throw refuse(field, 'only an admin may set it')
  if (!before?.trusted) return
  for (const field of [...ofConnection, 'policy', 'enabled', 'allow', 'deny'] as const)
    if (has(field)) throw refuse(field, 'an admin added this server, and only an admin may change it')
}

function checkUrl(url: string): void {
  const { username, password } = new URL(url)
  if (username || password)
    throw new Fault('invalid', 'url: it contains a user name or a password', {
      hint: 'put credentials into headers; their values are stored encrypted',
    })
}

type Owner = Pick<UpstreamRow, 'project_id' | 'trusted'>

/** The new settings and secrets. A value of `env` or `headers` that is given replaces all values of that field. */
export function applyChange(
  owner: Owner,
  before: { settings: UpstreamSettings; literals: Literals } | undefined,
  change: EntryChange,
): { settings: UpstreamSettings; literals: Literals } {
  const { env, headers, client_secret, enabled: _, ...plain } = change
  const literals: Literals = { ...before?.literals }
  const transport = plain.transport ?? before?.settings.transport
  if (transport === undefined) throw new Fault('invalid', 'transport is missing')
  const settings: UpstreamSettings = { ...before?.settings, transport }
  for (const [field, value] of Object.entries(plain))
    if (value !== undefined) Object.assign(settings, { [field]: value })
  for (const [field, values] of [
    ['env', env],
    ['headers', headers],
  ] as const) {
    if (values === undefined) continue
    checkReferences(owner, field, values)
    const split = splitValues(values)
    settings[field] = split.shown
    literals[field] = split.literals
  }
  if (client_secret !== undefined) literals.client_secret = client_secret
  const isStdio = transport === 'stdio'
  if (isStdio && !settings.command) throw new Fault('invalid', 'a stdio server needs "command"')
  if (!isStdio && !settings.url)
    throw new Fault('invalid', `a server with transport ${transport} needs "url"`)
  const misplaced = isStdio
    ? (['url', 'headers', 'oauth'] as const)
    : (['command', 'args', 'env', 'image', 'network', 'workspace'] as const)
  for (const field of misplaced)
    if (change[field] !== undefined)
      throw new Fault('invalid', `${field} does not apply to transport ${transport}`)
  if (settings.url) checkUrl(settings.url)
  return { settings, literals }
}

export type Counted = UpstreamRow & { tools: number; unapproved: number }

const stored = '«stored»'
const shownValues = (values: Record<string, string | null> | undefined) =>
  values && Object.fromEntries(Object.entries(values).map(([name, text]) => [name, text ?? stored]))

export function shownUpstream(row: Counted, status: UpstreamStatus) {
  const { settings } = row
  return {
    ...settings,
    name: row.name,
    project_id: row.project_id,
    source: row.source,
    enabled: row.enabled,
    ...(settings.env ? { env: shownValues(settings.env) } : {}),
    ...(settings.headers ? { headers: shownValues(settings.headers) } : {}),
    state: row.enabled ? status.state : ('disabled' as const),
    credentials: status.credentials,
    reason: status.reason,
    tools: row.tools,
    unapproved: row.unapproved,
    server: row.identity as Record<string, unknown> | null,
    discovered_at: row.discovered_at,
    created_by: row.created_by,
    created_at: row.created_at,
    updated_at: row.updated_at,
  }
}
