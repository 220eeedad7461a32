// Upstream MCP servers as files describe them: `mcp-servers.json` of the operator and `.mcp.json` of a project, both in the
// format of Claude Desktop, and `server.json` of the MCP registry. An invalid entry does not affect the others.
import { readFileSync, unwatchFile, watchFile } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { Fault } from '../fault.ts'
import { parseJsonc } from './place.ts'

const text = z.string().max(8000)
const names = z.array(z.string().min(1).max(200)).max(500)
const seconds = z.number().min(1).max(86_400)

export const verdicts = ['allow', 'ask', 'deny'] as const

/** Fields of an upstream that matter to few; the API has them in one object. */
export const optionFields = {
  image: z.string().min(1).max(500).optional().describe('Container image of a stdio server.'),
  network: z
    .enum(['none', 'internal', 'open'])
    .optional()
    .describe('Network of the container of a stdio server.'),
  workspace: z
    .enum(['read', 'write'])
    .optional()
    .describe('Mounts the workspaces of the project into the container of a stdio server.'),
  oauth: z
    .strictObject({
      grant: z.enum(['authorization_code', 'client_credentials']).default('authorization_code'),
      client_id: z.string().max(500).optional(),
      scope: z.string().max(1000).optional(),
    })
    .optional()
    .describe('OAuth settings of an HTTP server; the secret of the client is stored with `client_secret`.'),
  client_secret: text.optional().describe('Secret of the OAuth client; stored encrypted.'),
  tool_timeouts: z
    .record(z.string().max(200), seconds)
    .optional()
    .describe('Time-outs of single tools, in seconds.'),
  concurrency: z.int().min(1).max(256).optional().describe('Calls under way at the same time.'),
  idle_seconds: z
    .number()
    .min(0)
    .max(86_400)
    .optional()
    .describe('Unused time after which the connection closes; 0: never.'),
  max_result_bytes: z
    .int()
    .min(1024)
    .max(16 * 1024 * 1024)
    .optional()
    .describe('Larger results are an error.'),
  cache_seconds: z
    .number()
    .min(0)
    .max(86_400)
    .optional()
    .describe('How long results of tools that are both read-only and idempotent are reused.'),
  auto_approve: z
    .literal('read_only')
    .optional()
    .describe('Approves new tools with readOnlyHint when they appear.'),
  projects: z.literal('all').optional().describe('Every project may use this global server.'),
  unsafe: z.boolean().optional().describe('Stays off until an admin enables it by name.'),
}

export const connectionFields = {
  command: z.string().min(1).max(1000).optional(),
  args: z.array(text).max(200).optional(),
  env: z
    .record(
      z
        .string()
        .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
        .max(200),
      text,
    )
    .optional(),
  url: z
    .url({ protocol: /^https?$/ })
    .max(2000)
    .optional(),
  headers: z
    .record(
      z
        .string()
        .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/)
        .max(200),
      text.regex(/^[^\r\n]*$/),
    )
    .optional(),
  timeout_seconds: seconds.optional(),
  allow: names.optional(),
  deny: names.optional(),
  policy: z.record(z.string().min(1).max(200), z.enum(verdicts)).optional(),
}

export const serverName = z
  .string()
  .regex(
    /^[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,62}[A-Za-z0-9])?$/,
    'use letters, digits, ".", "-", "_"; at most 64',
  )

const kinds: Record<string, 'stdio' | 'http' | 'sse'> = {
  stdio: 'stdio',
  http: 'http',
  'streamable-http': 'http',
  streamable_http: 'http',
  streamableHttp: 'http',
  sse: 'sse',
}

/** Keys that other programs write and that mean nothing here are ignored. */
const fileEntry = z.object({
  ...connectionFields,
  ...optionFields,
  type: z.string().optional(),
  transport: z.string().optional(),
  run: z.enum(['container', 'process']).optional(),
  enabled: z.boolean().optional(),
  disabled: z.boolean().optional(),
})

export type ServerEntry = Omit<z.infer<typeof fileEntry>, 'type' | 'transport' | 'disabled'> & {
  transport: 'stdio' | 'http' | 'sse'
}
export type ServerEntries = { entries: Map<string, ServerEntry>; problems: string[] }

function entryOf(raw: unknown): ServerEntry {
  const { type, transport, disabled, ...entry } = fileEntry.parse(raw)
  const named = transport ?? type
  const kind = named === undefined ? (entry.command ? 'stdio' : 'http') : kinds[named]
  if (kind === undefined) throw new Error(`unknown transport "${String(named).slice(0, 40)}"`)
  if (kind === 'stdio' && !entry.command) throw new Error('command is missing')
  if (kind !== 'stdio' && !entry.url) throw new Error('url is missing')
  return { ...entry, transport: kind, enabled: entry.enabled ?? disabled !== true }
}

const reasonOf = (error: unknown): string =>
  error instanceof z.ZodError
    ? error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ')
    : (error as Error).message

/** `{"mcpServers": {name: entry}}`; throws only if the whole is not that. */
export function serversIn(value: unknown, file: string): ServerEntries {
  const servers = (value as { mcpServers?: unknown } | null)?.mcpServers
  if (typeof servers !== 'object' || servers === null || Array.isArray(servers))
    throw new Fault('invalid', `${file} has no object "mcpServers"`)
  const entries = new Map<string, ServerEntry>()
  const problems: string[] = []
  for (const [name, raw] of Object.entries(servers)) {
    try {
      serverName.parse(name)
      entries.set(name, entryOf(raw))
    } catch (error) {
      problems.push(`${file}: server "${name.slice(0, 80)}": ${reasonOf(error)}`)
    }
  }
  return { entries, problems }
}

export const parseServers = (content: string, file: string): ServerEntries =>
  serversIn(parseJsonc(content, file), file)

const registryValue = z.object({
  name: z.string().optional(),
  value: z.string().optional(),
  default: z.string().optional(),
  isRequired: z.boolean().optional(),
  type: z.string().optional(),
})
const registryTransport = z.object({
  type: z.string(),
  url: z.string().optional(),
  headers: z.array(registryValue).optional(),
})
const registryDocument = z.object({
  name: z.string().min(1).max(300),
  packages: z
    .array(
      z.object({
        registryType: z.string().optional(),
        registry_type: z.string().optional(),
        identifier: z.string(),
        version: z.string().optional(),
        transport: registryTransport.optional(),
        runtimeHint: z.string().optional(),
        runtimeArguments: z.array(registryValue).optional(),
        packageArguments: z.array(registryValue).optional(),
        environmentVariables: z.array(registryValue).optional(),
      }),
    )
    .optional(),
  remotes: z.array(registryTransport).optional(),
})

type RegistryValue = z.infer<typeof registryValue>

/** What the document gives values for, and the names of required ones that it leaves open. */
function valuesOf(list: RegistryValue[] | undefined): { values: Record<string, string>; missing: string[] } {
  const values: Record<string, string> = {}
  const missing: string[] = []
  for (const { name, value, default: usual, isRequired } of list ?? []) {
    if (name === undefined) continue
    const chosen = value ?? usual
    if (chosen !== undefined) values[name] = chosen
    else if (isRequired) missing.push(name)
  }
  return { values, missing }
}

function argumentsOf(list: RegistryValue[] | undefined): { args: string[]; missing: string[] } {
  const args: string[] = []
  const missing: string[] = []
  for (const { type, name, value, default: usual, isRequired } of list ?? []) {
    const chosen = value ?? usual
    if (chosen === undefined && isRequired) missing.push(name ?? 'a positional argument')
    else if (type === 'named' && name !== undefined)
      args.push(name, ...(chosen === undefined ? [] : [chosen]))
    else if (chosen !== undefined) args.push(chosen)
  }
  return { args, missing }
}

/** The last part of a name such as `io.github.user/weather`, as the name of an upstream. */
const shortName = (name: string): string =>
  (name.split('/').at(-1) ?? name)
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, '')
    .slice(0, 64)

/** A remote if there is one, else the first package that can be started. What lacks values is disabled. */
export function serverOfRegistry(value: unknown): ServerEntries {
  const parsed = registryDocument.safeParse(value)
  if (!parsed.success)
    throw new Fault('invalid', `not a server.json of the MCP registry: ${reasonOf(parsed.error)}`)
  const { name, remotes = [], packages = [] } = parsed.data
  const found = remoteIn(remotes) ?? packageIn(packages)
  if (!found)
    throw new Fault('invalid', `server.json of "${name}" has no remote and no npm or PyPI package with stdio`)
  const { raw, missing } = found
  const problems =
    missing.length === 0
      ? []
      : [
          `server "${shortName(name)}" is disabled: it needs ${missing.join(', ')}; set them with mcp_server update`,
        ]
  return {
    entries: new Map([[shortName(name), entryOf({ ...raw, enabled: missing.length === 0 })]]),
    problems,
  }
}

type Raw = { raw: Record<string, unknown>; missing: string[] }

function remoteIn(remotes: z.infer<typeof registryTransport>[]): Raw | undefined {
  const remote = remotes.find(({ type, url }) => kinds[type] !== undefined && url)
  if (!remote) return undefined
  const { values: headers, missing } = valuesOf(remote.headers)
  return { raw: { type: remote.type, url: remote.url, headers }, missing }
}

/** How packages of a registry are started. */
const runners: Record<string, { command: string; args: (identifier: string, version?: string) => string[] }> =
  {
    npm: { command: 'npx', args: (name, version) => ['-y', version ? `${name}@${version}` : name] },
    pypi: { command: 'uvx', args: (name, version) => [version ? `${name}==${version}` : name] },
  }

function packageIn(packages: NonNullable<z.infer<typeof registryDocument>['packages']>): Raw | undefined {
  for (const one of packages) {
    const runner = runners[one.registryType ?? one.registry_type ?? '']
    if (!runner || (one.transport && one.transport.type !== 'stdio')) continue
    const { values: env, missing } = valuesOf(one.environmentVariables)
    const before = argumentsOf(one.runtimeArguments)
    const after = argumentsOf(one.packageArguments)
    const args = [...before.args, ...runner.args(one.identifier, one.version), ...after.args]
    return {
      raw: { type: 'stdio', command: one.runtimeHint ?? runner.command, args, env },
      missing: [...missing, ...before.missing, ...after.missing],
    }
  }
  return undefined
}

const fileName = 'mcp-servers.json'
const pollMs = 1000

export type ServersFile = { path: string; content: string }

/** The first of the given directories that has the file. */
export function findServersFile(directories: readonly string[]): ServersFile | undefined {
  for (const directory of directories) {
    const path = join(directory, fileName)
    try {
      return { path, content: readFileSync(path, 'utf8') }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        throw new Fault('unavailable', `cannot read ${path}: ${(error as Error).message}`, { cause: error })
    }
  }
  return undefined
}

/** Calls back when the file is created, changed or removed in one of the directories. The returned function ends it. */
export function watchServersFile(directories: readonly string[], changed: () => void): () => void {
  const paths = [...new Set(directories.map((directory) => join(directory, fileName)))]
  for (const path of paths) watchFile(path, { interval: pollMs, persistent: false }, changed)
  return () => {
    for (const path of paths) unwatchFile(path, changed)
  }
}
