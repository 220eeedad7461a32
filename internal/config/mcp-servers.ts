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

function valuesOf(
  list: z.infer<typeof registryValue>[] | undefined,
  given: Record<string, string>,
): Record<string, string> {
  const values: Record<string, string> = {}
  for (const { name, value, default: usual, isRequired } of list ?? []) {
    if (name === undefined) continue
    const chosen = given[name] ?? value ?? usual
    if (chosen !== undefined) values[name] = chosen
    else if (isRequired)
      throw new Fault('invalid', `the server needs a value for "${name}"`, {
        hint: 'give it in env or headers',
      })
  }
  return { ...values, ...given }
}

const argumentsOf = (list: z.infer<typeof registryValue>[] | undefined): string[] =>
  (list ?? []).flatMap(({ type, name, value, default: usual, isRequired }) => {
    const chosen = value ?? usual
    if (chosen === undefined && isRequired)
      throw new Fault('invalid', `the server needs a value for the argument "${name ?? '?'}"`, {
        hint: 'add the server with mcp_server add and args',
      })
    if (type === 'named') return chosen === undefined ? (name ? [name] : []) : [name ?? '', chosen]
    return chosen === undefined ? [] : [chosen]
  })

/** The last part of a name such as `io.github.user/weather`, as the name of an upstream. */
const shortName = (name: string): string =>
  (name.split('/').at(-1) ?? name)
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, '')
    .slice(0, 64)

/** A remote if there is one, else the first package that can be started. */
export function serverOfRegistry(
  value: unknown,
  given: { env?: Record<string, string>; headers?: Record<string, string> },
): { name: string; entry: ServerEntry } {
  const parsed = registryDocument.safeParse(value)
  if (!parsed.success)
    throw new Fault('invalid', `not a server.json of the MCP registry: ${reasonOf(parsed.error)}`)
  const { name, remotes = [], packages = [] } = parsed.data
  const remote = remotes.find(({ type, url }) => kinds[type] !== undefined && url)
  if (remote) {
    const headers = valuesOf(remote.headers, given.headers ?? {})
    return {
      name: shortName(name),
      entry: entryOf({
        type: remote.type,
        url: remote.url,
        ...(Object.keys(headers).length > 0 ? { headers } : {}),
      }),
    }
  }
  for (const one of packages) {
    const registry = one.registryType ?? one.registry_type
    const at = one.version ? (registry === 'pypi' ? `==${one.version}` : `@${one.version}`) : ''
    const start =
      registry === 'npm'
        ? { command: one.runtimeHint ?? 'npx', args: ['-y', `${one.identifier}${at}`] }
        : registry === 'pypi'
          ? { command: one.runtimeHint ?? 'uvx', args: [`${one.identifier}${at}`] }
          : undefined
    if (!start || (one.transport && one.transport.type !== 'stdio')) continue
    const env = valuesOf(one.environmentVariables, given.env ?? {})
    const args = [...argumentsOf(one.runtimeArguments), ...start.args, ...argumentsOf(one.packageArguments)]
    return { name: shortName(name), entry: entryOf({ type: 'stdio', command: start.command, args, env }) }
  }
  throw new Fault('invalid', `server.json of "${name}" has no remote and no npm or PyPI package with stdio`)
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
