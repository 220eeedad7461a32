// The one schema of `oubliette.jsonc`, parsed once in `main`; each room receives the slice it needs.
// `docs/configuration.md` is generated from it, so every key has a description.
import { readFileSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { type ParseError, parse, printParseErrorCode } from 'jsonc-parser'
import { z } from 'zod'
import { Fault } from '../fault.ts'
import { isRange, isUnicast } from '../lib/ipv4.ts'
import { Secret } from '../log.ts'
import { defaultDroids } from './default-droids.ts'
import {
  type Credential,
  credentialSchema,
  defaultPriceSchema,
  droidSchema,
  estimatesSchema,
  hostedTools,
  isLiteral,
  priceSchema,
  readCredentials,
  secretOf,
} from './models.ts'

/** What a project may use; a project's own `limits` override these one by one. */
export const limitsSchema = z.strictObject({
  max_recursion_depth: z.int().min(0).max(20).default(3).describe('How deep sessions may spawn sessions.'),
  max_agents_per_session: z
    .int()
    .min(1)
    .max(1000)
    .default(20)
    .describe('Sessions in one tree, the root included.'),
  max_active_sessions: z
    .int()
    .min(1)
    .max(1000)
    .default(20)
    .describe(
      'Sessions of one project that are not over, those that are queued or hibernated included. How many droids run at once is decided by `memory_mb`.',
    ),
  max_spawns_per_minute: z
    .int()
    .min(1)
    .max(10_000)
    .default(60)
    .describe('New sessions of one project in a minute.'),
  max_cost_usd: z
    .number()
    .min(0)
    .max(1_000_000)
    .default(100)
    .describe('Model cost of one project in all, in US dollars.'),
  memory_mb: z
    .int()
    .min(64)
    .max(1_048_576)
    .default(2048)
    .describe(
      'Memory of the container, in MiB. Sessions with a running droid share it: a session whose droid does not fit (`droids.*.memory_mb`, and 48 MiB for the supervisor) waits as `queued` until another ends or is hibernated. So 2,048 MiB hold four OpenCode agents at work, whatever `max_active_sessions` is.',
    ),
  cpus: z.number().min(0.1).max(256).default(2).describe('Processor cores of the container.'),
  pids: z.int().min(16).max(100_000).default(512).describe('Processes and threads in the container.'),
  session_mb: z
    .int()
    .min(1)
    .max(1_048_576)
    .default(256)
    .describe('Events that one session may store, in MiB; beyond that it fails.'),
  disk_mb: z
    .int()
    .min(16)
    .max(1_073_741_824)
    .default(10_240)
    .describe(
      'What the files of a project may take on the disk, in MiB, measured in intervals; an entry counts 8 KiB at least on average. No single file grows beyond it.',
    ),
})
export type Limits = z.infer<typeof limitsSchema>

export const configSchema = z.strictObject({
  address: z
    .string()
    .default('127.0.0.1:8080')
    .describe('Where the HTTP server listens (`OUBLIETTE_ADDRESS` wins).'),
  database_url: z
    .string()
    .min(1)
    .optional()
    .describe(
      'A PostgreSQL to use instead of the embedded one, or `${env:NAME}` to take it from the environment (`DATABASE_URL` wins).',
    ),
  allowed_hosts: z
    .array(z.string())
    .default([])
    .describe('Further names accepted in the Host header, next to loopback and the address itself.'),
  allowed_origins: z
    .array(z.string())
    .default([])
    .describe('Browser origins that may call; none by default.'),
  max_body_bytes: z
    .int()
    .min(1024)
    .default(4 * 1024 * 1024)
    .describe('Largest request body.'),
  max_connections: z
    .int()
    .min(10)
    .max(1_000_000)
    .default(10_000)
    .describe('TCP connections that the HTTP server keeps open; further ones are closed.'),
  streams: z
    .strictObject({
      per_token: z.int().min(1).max(100_000).default(200).describe('Open streams of one token.'),
      per_server: z
        .int()
        .min(2)
        .max(1_000_000)
        .default(5000)
        .describe('Open streams of all tokens together.'),
    })
    .refine(({ per_token, per_server }) => per_token < per_server, {
      path: ['per_token'],
      message: 'must be less than per_server, or one token could take every place',
    })
    .prefault({})
    .describe(
      'Streams that stay open (events, `GET /mcp`, `subscriptions/listen`); a further one is answered with 429 and `Retry-After`.',
    ),
  default_droid: z.string().default('shell').describe('The droid of projects and calls that name none.'),
  droids: z
    .record(z.string().regex(/^[a-z][a-z0-9-]{0,31}$/), droidSchema)
    .default({})
    .describe('Agents that sessions can run, by name. `shell` is always there.'),
  default_autonomy: z
    .enum(['off', 'low', 'medium', 'high'])
    .default('high')
    .describe(
      'What droids may do without asking: `off` nothing, `low` and `medium` reading, `high` all; the container is the wall.',
    ),
  models: z.array(z.string()).default([]).describe('Model names that `project options` offers.'),
  credentials: z
    .record(z.string().regex(/^[A-Za-z0-9_-]{1,64}$/), credentialSchema)
    .default({})
    .describe('Secrets that projects refer to by name; they are never shown.'),
  prices: z
    .record(z.string().min(1), priceSchema)
    .default({})
    .describe(
      'US dollars per million tokens, by model; a name may end in `*`, and the longest match is used.',
    ),
  unpriced_models: z
    .enum(['default', 'refuse'])
    .default('default')
    .describe(
      'What happens to requests for a model without a price: `default` counts them by `default_price`, `refuse` refuses them.',
    ),
  default_price: defaultPriceSchema
    .prefault({})
    .describe('The price of models that `prices` does not name, in US dollars per million tokens.'),
  estimates: estimatesSchema
    .prefault({})
    .describe(
      'Upper bounds used to reserve the cost of a model request before it is sent. Text counts as one token per byte.',
    ),
  hosted_tools: z
    .array(z.enum(hostedTools))
    .default([])
    .describe(
      'What model providers may do on behalf of droids in projects with `network: open`: tools that they run themselves, and files that they fetch. Projects with another network may use none.',
    ),
  default_container_type: z
    .string()
    .default('base')
    .describe('The image of projects that name none: a folder of `images/`.'),
  limits: limitsSchema.prefault({}).describe('Default limits of a project.'),
  min_free_disk_mb: z
    .int()
    .min(0)
    .max(1_073_741_824)
    .default(1024)
    .describe(
      'Free space on the disk of the home, in MiB, below which no session is spawned and no container started.',
    ),
  network_pool: z
    .string()
    .regex(/^\d+\.\d+\.\d+\.\d+\/\d+$/)
    .default('10.213.0.0/16')
    .describe('IPv4 range from which project networks get a /28 each.'),
  allowed_networks: z
    .array(
      z.string().refine(isRange, 'is not an IPv4 range such as 10.20.0.0/16, written from its first address'),
    )
    .max(100)
    .default([])
    .describe(
      "IPv4 ranges that projects with network `open` may reach although they are private, link-local, shared (100.64.0.0/10) or reserved. The host's own addresses stay closed.",
    ),
  dns_servers: z
    .array(z.string().refine(isUnicast, 'is not the IPv4 address of a DNS server that containers can reach'))
    .max(3)
    .default([])
    .describe(
      "DNS servers of projects with network `open`; the engine's if empty. Their port 53 can be reached also where their address is private.",
    ),
  container_uid: z
    .int()
    .min(1)
    .max(65_533)
    .optional()
    .describe(
      "User id and group id of all processes in containers; 1000 if left out. Only for a server that runs as root: without root, containers have the server's own user and primary group.",
    ),
  exec_output_bytes: z
    .int()
    .min(1024)
    .max(64 * 1024 * 1024)
    .default(1024 * 1024)
    .describe('How much of stdout and of stderr `container exec` returns.'),
  execs: z
    .strictObject({
      attached: z
        .int()
        .min(1)
        .max(2000)
        .default(512)
        .describe('Calls of `container exec` that may wait for their command in one container at once.'),
      running: z
        .int()
        .min(1)
        .max(1000)
        .default(64)
        .describe('Detached commands that may run in one container at once.'),
      kept: z
        .int()
        .min(1)
        .max(1000)
        .default(200)
        .describe('Detached commands of one project that are over and still listed, with their output.'),
      output_mb: z
        .number()
        .min(0.01)
        .max(1024)
        .default(8)
        .describe(
          'Stored stdout and stored stderr of one detached command, in MiB each; the rest is dropped.',
        ),
      total_mb: z
        .number()
        .min(0.01)
        .max(65_536)
        .default(256)
        .describe(
          'Stored output of all detached commands of one container, in MiB; that of the oldest is removed first.',
        ),
    })
    .prefault({})
    .describe('Commands of `container exec`; beyond these limits a call is refused with `exhausted`.'),
  heartbeat_seconds: z
    .number()
    .min(0.1)
    .max(60)
    .default(5)
    .describe(
      'How often the supervisor of each container is asked for a sign of life. After three without an answer its connection is closed.',
    ),
  session_idle_minutes: z
    .number()
    .min(0.1)
    .default(720)
    .describe('An idle session is completed after this long.'),
  hibernate_minutes: z
    .number()
    .min(0)
    .max(525_600)
    .default(10)
    .describe(
      'The process of an agent that has been idle this long is stopped, if the agent can resume its conversation; the next message starts it again. 0 stops it only when another session needs the memory.',
    ),
  reconcile_seconds: z.number().min(1).default(30).describe('How often rows and engine are compared.'),
  shutdown_seconds: z.number().min(1).default(20).describe('How long SIGTERM waits for running calls.'),
  watchdog_seconds: z
    .int()
    .min(0)
    .max(3600)
    .default(60)
    .describe(
      'The process is ended, for a service manager to start it again, when its event loop has not turned for this long; 0 never ends it.',
    ),
  agent_answer_seconds: z
    .number()
    .min(1)
    .max(3600)
    .default(60)
    .describe(
      'How long an agent may take to answer `initialize`, and half of what it may take to open a session; then the session fails.',
    ),
  agent_silence_minutes: z
    .number()
    .min(0.02)
    .max(10_080)
    .default(60)
    .describe(
      'An agent that says nothing for this long in a turn, with no tool running and no question open, is ended and its session fails.',
    ),
  database_timeout_seconds: z
    .number()
    .min(1)
    .max(600)
    .default(10)
    .describe(
      'How long a query may take, the wait for a connection included; then its call fails with `unavailable` and the connection is replaced.',
    ),
  audit_days: z.int().min(1).default(90).describe('How long audit rows are kept.'),
  schedules: z
    .strictObject({
      history_days: z.number().min(0.01).max(36_500).default(30).describe('How long finished runs are kept.'),
      history_runs: z
        .int()
        .min(1)
        .max(1_000_000)
        .default(1000)
        .describe('How many runs of a schedule are kept.'),
      queue: z
        .int()
        .min(1)
        .max(1000)
        .default(10)
        .describe(
          'How many runs of one target may wait with `overlap_behavior` queue; further ones are skipped.',
        ),
    })
    .prefault({})
    .describe('Schedules and the history of their runs.'),
  rate: z
    .strictObject({
      per_token_per_second: z.number().min(0.1).default(500).describe('Sustained requests per token.'),
      per_token_burst: z.int().min(1).default(2000).describe('Requests that a token may make at once.'),
      per_token_at_once: z
        .int()
        .min(1)
        .default(2000)
        .describe(
          'Requests of one token that may be under way at the same time, streams and waiting calls included.',
        ),
      failures_per_address_per_minute: z
        .int()
        .min(1)
        .default(60)
        .describe('Requests without a valid token that one address may make in a minute.'),
      per_container_per_second: z
        .number()
        .min(1)
        .default(2000)
        .describe(
          'Sustained messages and model requests of the droids of one container; a heavy one counts as several. Messages that come faster wait in the container, model requests are answered with 503.',
        ),
      per_container_burst: z
        .int()
        .min(1)
        .default(4000)
        .describe('Messages and model requests that the droids of one container may send at once.'),
    })
    .prefault({})
    .describe('Request rates; over HTTP, what is beyond them is answered with 429 and `Retry-After`.'),
  oidc: z
    .strictObject({
      issuer: z.url().describe('Issuer URL; its discovery document names the keys.'),
      audience: z.string().describe("What `aud` must contain: this server's resource identifier."),
      scope_claim: z
        .string()
        .default('scope')
        .describe('The claim that carries our scopes, separated by spaces or as a list.'),
      jwks_uri: z.url().optional().describe('Where the keys are, if not as discovered.'),
    })
    .optional()
    .describe('Accept access tokens of an OpenID Connect issuer next to our own.'),
  log: z
    .strictObject({
      level: z
        .enum(['debug', 'info', 'warn', 'error'])
        .default('info')
        .describe('The least level that is written.'),
      format: z.enum(['json', 'text']).optional().describe('`text` on a terminal, else `json`.'),
    })
    .prefault({})
    .describe('Logs on stderr.'),
})
/** Without the secrets, which have a type of their own. */
export type Config = Omit<z.infer<typeof configSchema>, 'credentials' | 'database_url'>

export type { Credential }

export type Settings = {
  credentials: ReadonlyMap<string, Credential>
  home: string
  config: Config
  database_url: Secret | undefined
  docker_host: string | undefined
  admin_token: Secret | undefined
  /** What stops a server from starting here. Commands that only talk to one do not ask. */
  problems: Fault[]
  /** What a server can start with, but somebody should know. */
  warnings: string[]
}

export function parseAddress(address: string): { host: string; port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:\s]+)):(\d{1,5})$/.exec(address)
  const port = Number(match?.[3])
  if (!match || port > 65_535)
    throw new Fault('invalid', `address "${address}" is not host:port`, {
      hint: 'for example 127.0.0.1:8080 or [::1]:8080',
    })
  return { host: (match[1] ?? match[2])!, port }
}

function problemsOf(error: z.ZodError): string {
  return error.issues
    .map((issue) => {
      const where = issue.path.join('.')
      if (issue.code === 'unrecognized_keys')
        return `unknown key ${issue.keys.map((key) => `"${[...issue.path, key].join('.')}"`).join(', ')}`
      return `${where}: ${issue.message}`
    })
    .join('; ')
}

export function parseConfig(text: string, file: string): z.infer<typeof configSchema> {
  const errors: ParseError[] = []
  const raw: unknown = text.trim() === '' ? {} : parse(text, errors, { allowTrailingComma: true })
  const first = errors[0]
  if (first) {
    const line = text.slice(0, first.offset).split('\n').length
    throw new Fault('invalid', `${file}:${line}: ${printParseErrorCode(first.error)}`)
  }
  const parsed = configSchema.safeParse(raw)
  if (!parsed.success)
    throw new Fault('invalid', `${file}: ${problemsOf(parsed.error)}`, {
      hint: 'docs/configuration.md lists every key',
    })
  return parsed.data
}

export function homeOf(env: NodeJS.ProcessEnv, checkout: string | undefined): string {
  if (env.OUBLIETTE_HOME) return resolve(env.OUBLIETTE_HOME)
  return checkout ? join(checkout, '.oubliette') : join(homedir(), '.oubliette')
}

type Parsed = z.infer<typeof configSchema>

/** A file that holds a secret and that other users of the machine can read. */
function exposed(file: string, { credentials, database_url }: Parsed): Fault | undefined {
  const secrets = Object.values(credentials).flatMap(({ key, session_token }) => [key, session_token])
  if (![...secrets, database_url].some((text) => text !== undefined && isLiteral(text))) return undefined
  const mode = statSync(file).mode & 0o777
  if ((mode & 0o077) === 0) return undefined
  return new Fault(
    'forbidden',
    `${file} holds a secret and can be read by other users (mode ${mode.toString(8).padStart(4, '0')})`,
    { hint: `chmod 600 ${file}, or refer to the environment with \${env:NAME}` },
  )
}

/** `DATABASE_URL`, else what the config says. A variable that is not set must not end in another database. */
function databaseUrl(given: string | undefined, env: NodeJS.ProcessEnv, file: string) {
  if (env.DATABASE_URL) return { secret: new Secret(env.DATABASE_URL) }
  if (given === undefined) return {}
  const { secret, unset } = secretOf(given, env)
  if (secret) return { secret }
  return {
    problem: new Fault(
      'invalid',
      `${file}: database_url refers to the environment variable ${unset}, which is not set`,
    ),
  }
}

/** Environment and config file, together. `checkout` is the root of a source tree, if we run from one. */
export function loadSettings(env: NodeJS.ProcessEnv, checkout: string | undefined): Settings {
  const home = homeOf(env, checkout)
  const file = join(home, 'oubliette.jsonc')
  let text = ''
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      throw new Fault('unavailable', `cannot read ${file}: ${(error as Error).message}`, { cause: error })
  }
  const parsed = parseConfig(text, file)
  if (env.OUBLIETTE_ADDRESS) parsed.address = env.OUBLIETTE_ADDRESS
  parseAddress(parsed.address)
  parsed.droids = { ...defaultDroids, ...parsed.droids }
  const admin = env.OUBLIETTE_ADMIN_TOKEN
  if (admin && !/^oub_[0-9a-f]{64}$/.test(admin))
    throw new Fault('invalid', 'OUBLIETTE_ADMIN_TOKEN is not "oub_" and 64 hexadecimal digits')
  const { credentials: configured, database_url: given, ...config } = parsed
  const { credentials, warnings } = readCredentials(configured, env, file)
  const database = databaseUrl(given, env, file)
  return {
    home,
    config,
    credentials,
    database_url: database.secret,
    docker_host: env.DOCKER_HOST || undefined,
    admin_token: admin ? new Secret(admin) : undefined,
    problems: [exposed(file, parsed), database.problem].filter((problem) => problem !== undefined),
    warnings,
  }
}
