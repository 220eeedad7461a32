// The schema of `oubliette.jsonc`: every key, its range, its default and its description. `docs/configuration.md` is
// generated from it.
import { z } from 'zod'
import { isRange, isUnicast } from '../lib/net/ipv4.ts'
import { limitsSchema } from './limits.ts'
import {
  credentialSchema,
  defaultPriceSchema,
  droidSchema,
  estimatesSchema,
  hostedTools,
  priceSchema,
} from './models.ts'
import { defaultAddress } from './place.ts'

const streams = z
  .strictObject({
    per_token: z
      .int()
      .min(1)
      .max(100_000)
      .default(200)
      .describe('Maximum number of open streams per token. Must be less than `per_server`.'),
    per_server: z
      .int()
      .min(2)
      .max(1_000_000)
      .default(5000)
      .describe('Maximum number of open streams of all tokens.'),
  })
  .refine(({ per_token, per_server }) => per_token < per_server, {
    path: ['per_token'],
    message: 'must be less than per_server, otherwise one token can use all streams',
  })

const execs = z.strictObject({
  attached: z
    .int()
    .min(1)
    .max(2000)
    .default(512)
    .describe(
      'Maximum number of concurrent `container exec` calls that wait for a command in one container.',
    ),
  running: z
    .int()
    .min(1)
    .max(1000)
    .default(64)
    .describe('Maximum number of detached commands that run in one container at the same time.'),
  kept: z
    .int()
    .min(1)
    .max(1000)
    .default(200)
    .describe('Number of finished detached commands that are kept per project, with their output.'),
  output_mb: z
    .number()
    .min(0.01)
    .max(1024)
    .default(8)
    .describe(
      'Maximum stored stdout, and maximum stored stderr, of one detached command, in MiB. Further output is discarded.',
    ),
  total_mb: z
    .number()
    .min(0.01)
    .max(65_536)
    .default(256)
    .describe(
      'Maximum stored output of all detached commands of one container, in MiB. The oldest output is removed first.',
    ),
})

const terminals = z.strictObject({
  per_project: z
    .int()
    .min(1)
    .max(256)
    .default(32)
    .describe('Maximum number of open terminals in one container.'),
  per_token: z.int().min(1).max(1000).default(64).describe('Maximum number of open terminals per token.'),
  idle_minutes: z
    .number()
    .min(0.01)
    .max(10_080)
    .default(240)
    .describe('Time without input and output after which a terminal is closed.'),
})

const archives = z.strictObject({
  per_project: z
    .int()
    .min(1)
    .max(64)
    .default(4)
    .describe('Maximum number of concurrent copies from and to the workspaces of one project.'),
  per_server: z
    .int()
    .min(1)
    .max(1000)
    .default(32)
    .describe('Maximum number of concurrent copies of all projects.'),
})

const schedules = z.strictObject({
  history_days: z
    .number()
    .min(0.01)
    .max(36_500)
    .default(30)
    .describe('Retention period of finished runs, in days.'),
  history_runs: z
    .int()
    .min(1)
    .max(1_000_000)
    .default(1000)
    .describe('Number of runs that are kept per schedule.'),
  queue: z
    .int()
    .min(1)
    .max(1000)
    .default(10)
    .describe(
      'Maximum number of waiting runs per target when `overlap_behavior` is `queue`. Further runs are skipped.',
    ),
})

const approvals = z.strictObject({
  ask_at_high: z
    .enum(['destructive', 'dangerous', 'none'])
    .default('destructive')
    .describe(
      'Calls of upstream tools that are asked at autonomy `high`: `destructive` those of tools that are destructive or do not say that they are not, `dangerous` only those that are destructive by their annotations or by their name, `none` no calls.',
    ),
  trust_annotations: z
    .enum(['admin', 'all', 'none'])
    .default('admin')
    .describe(
      'Upstream servers whose annotations (`readOnlyHint`, `destructiveHint: false`) spare a question: those that an admin added, `all`, or `none`.',
    ),
  expire_hours: z
    .number()
    .min(0.0001)
    .max(8760)
    .default(168)
    .describe(
      'Time after which an open approval is denied, in hours. Permission requests of agents do not expire.',
    ),
  open_per_session: z
    .int()
    .min(1)
    .max(1000)
    .default(20)
    .describe('Maximum number of open approvals of one session. A further call fails with `exhausted`.'),
  open_per_project: z
    .int()
    .min(1)
    .max(10_000)
    .default(200)
    .describe('Maximum number of open approvals of one project.'),
})

const gateway = z.strictObject({
  find_tools_above: z
    .int()
    .min(0)
    .max(10_000)
    .default(60)
    .describe(
      'Number of upstream tools above which agents that load every definition (OpenCode, Codex, Gemini and unknown ones) get `find_tools` and `call_tool` instead of the list.',
    ),
  calls_per_second: z
    .number()
    .min(0.1)
    .max(100_000)
    .default(100)
    .describe('Sustained calls per second of one project to one upstream server.'),
  calls_burst: z
    .int()
    .min(1)
    .max(100_000)
    .default(500)
    .describe('Maximum burst of calls of one project to one upstream server.'),
  timeout_seconds: z
    .number()
    .min(1)
    .max(86_400)
    .default(30)
    .describe('Time-out of a call of an upstream tool without progress, unless the server sets its own.'),
  max_result_bytes: z
    .int()
    .min(1024)
    .max(16 * 1024 * 1024)
    .default(1024 * 1024)
    .describe('Maximum size of a result of an upstream tool, unless the server sets its own.'),
  idle_seconds: z
    .number()
    .min(0)
    .max(86_400)
    .default(600)
    .describe('Time after which an unused connection to an upstream server is closed; 0: never.'),
})

const rate = z.strictObject({
  per_token_per_second: z
    .number()
    .min(0.1)
    .default(500)
    .describe('Sustained requests per second, per token.'),
  per_token_burst: z.int().min(1).default(2000).describe('Maximum burst of requests, per token.'),
  per_token_at_once: z
    .int()
    .min(1)
    .default(2000)
    .describe('Maximum number of concurrent requests per token, including streams and waiting calls.'),
  failures_per_address_per_minute: z
    .int()
    .min(1)
    .default(60)
    .describe('Requests without a valid token that are accepted per client address and minute.'),
  per_container_per_second: z
    .number()
    .min(1)
    .default(2000)
    .describe(
      'Sustained messages and model requests per second from the droids of one container. An expensive message counts as several. Messages above the rate wait in the container; model requests above the rate receive 503.',
    ),
  per_container_burst: z
    .int()
    .min(1)
    .default(4000)
    .describe('Maximum burst of messages and model requests from the droids of one container.'),
})

const oidc = z.strictObject({
  issuer: z.url().describe('Issuer URL. The keys are found through its discovery document.'),
  audience: z.string().describe('Required value of the `aud` claim: the resource identifier of this server.'),
  scope_claim: z
    .string()
    .default('scope')
    .describe('Claim that contains the Oubliette scopes, as a space-separated string or a list.'),
  jwks_uri: z.url().optional().describe('URL of the key set. Overrides the discovery document.'),
})

const log = z.strictObject({
  level: z.enum(['debug', 'info', 'warn', 'error']).default('info').describe('Minimum level that is logged.'),
  format: z
    .enum(['json', 'text'])
    .optional()
    .describe('Log format. If omitted: `text` on a terminal, otherwise `json`.'),
  keep_lines: z
    .int()
    .min(100)
    .max(1_000_000)
    .default(5000)
    .describe('Number of log lines that are kept in memory for `diagnostics server_log`.'),
})

export const configSchema = z.strictObject({
  address: z
    .string()
    .default(defaultAddress)
    .describe('Listen address of the HTTP server, as host:port. `OUBLIETTE_ADDRESS` overrides it.'),
  database_url: z
    .string()
    .min(1)
    .optional()
    .describe(
      'URL of a PostgreSQL server, or `${env:NAME}` to read it from the environment. If omitted, the server runs an embedded PostgreSQL. `DATABASE_URL` overrides it.',
    ),
  allowed_hosts: z
    .array(z.string())
    .default([])
    .describe('Host header values that are accepted in addition to loopback names and the listen address.'),
  allowed_origins: z.array(z.string()).default([]).describe('Origins from which browsers can send requests.'),
  max_body_bytes: z
    .int()
    .min(1024)
    .default(4 * 1024 * 1024)
    .describe('Maximum size of a request body, in bytes.'),
  max_connections: z
    .int()
    .min(10)
    .max(1_000_000)
    .default(10_000)
    .describe('Maximum number of open TCP connections to the HTTP server. Further connections are closed.'),
  streams: streams
    .prefault({})
    .describe(
      'Limits for open streams (events, `GET /mcp`, `subscriptions/listen`). A request above a limit receives 429 with `Retry-After`.',
    ),
  default_droid: z
    .string()
    .default('shell')
    .describe('Droid that is used when neither the project nor the call names one.'),
  droids: z
    .record(z.string().regex(/^[a-z][a-z0-9-]{0,31}$/), droidSchema)
    .default({})
    .describe(
      'Droids that sessions can run, by name. `shell` and the droids of docs/droids.md are predefined; an entry with the same name replaces the predefined one.',
    ),
  default_autonomy: z
    .enum(['off', 'low', 'medium', 'high'])
    .default('high')
    .describe(
      'Operations that droids perform without asking for permission: `off` none, `low` and `medium` read operations, `high` all. The container is the security boundary at every level; tools of upstream servers act outside of it and follow `approvals`.',
    ),
  approvals: approvals
    .prefault({})
    .describe(
      'What is asked before a tool outside of the container is called, and the limits of the approval inbox.',
    ),
  gateway: gateway.prefault({}).describe('Upstream MCP servers: their tools, calls and connections.'),
  models: z.array(z.string()).default([]).describe('Model names that `project options` returns.'),
  credentials: z
    .record(z.string().regex(/^[A-Za-z0-9_-]{1,64}$/), credentialSchema)
    .default({})
    .describe('Secrets that projects refer to by name. Their values are never returned or logged.'),
  prices: z
    .record(z.string().min(1), priceSchema)
    .default({})
    .describe(
      'Model prices in US dollars per million tokens, by model name. A name can end in `*`; the longest match applies.',
    ),
  unpriced_models: z
    .enum(['default', 'refuse'])
    .default('default')
    .describe(
      'Handling of requests for a model without a price: `default` charges `default_price`, `refuse` rejects the request.',
    ),
  default_price: defaultPriceSchema
    .prefault({})
    .describe('Price of models that do not match an entry of `prices`, in US dollars per million tokens.'),
  estimates: estimatesSchema
    .prefault({})
    .describe(
      'Upper bounds used to reserve the cost of a model request before it is sent. Text counts as one token per byte.',
    ),
  hosted_tools: z
    .array(z.enum(hostedTools))
    .default([])
    .describe(
      'Provider-side features that droids of projects with `network: open` can use: tools that the model provider runs, and files that it fetches. Projects with another network can use none.',
    ),
  default_container_type: z
    .string()
    .default('base')
    .describe('Container type (a directory of `images/`) of projects that do not set one.'),
  images_dir: z
    .string()
    .regex(/^\//, 'must be an absolute path')
    .optional()
    .describe(
      'Directory of the container types, an absolute path; each type is a directory with a `Dockerfile`, and `base` is required. If omitted, `images/` of the installation.',
    ),
  limits: limitsSchema.prefault({}).describe('Default limits of a project.'),
  min_free_disk_mb: z
    .int()
    .min(0)
    .max(1_073_741_824)
    .default(1024)
    .describe(
      'Minimum free space on the file system of `OUBLIETTE_HOME`, in MiB. Below it, sessions are not spawned and containers are not started.',
    ),
  backup_before_upgrade: z
    .boolean()
    .default(true)
    .describe(
      'Whether a newer release backs up the database to `OUBLIETTE_HOME/backups` before it migrates it. The last three of these backups are kept.',
    ),
  network_pool: z
    .string()
    .regex(/^\d+\.\d+\.\d+\.\d+\/\d+$/)
    .default('10.213.0.0/16')
    .describe('IPv4 range from which each project network receives a /28.'),
  allowed_networks: z
    .array(
      z.string().refine(isRange, 'is not an IPv4 range such as 10.20.0.0/16, written from its first address'),
    )
    .max(100)
    .default([])
    .describe(
      'Private, link-local, shared (100.64.0.0/10) or reserved IPv4 ranges that projects with network `open` can reach. The addresses of the host stay blocked.',
    ),
  dns_servers: z
    .array(z.string().refine(isUnicast, 'is not the IPv4 address of a DNS server that containers can reach'))
    .max(3)
    .default([])
    .describe(
      'DNS servers of projects with network `open`. If empty, those of the container engine. Port 53 of these servers is reachable even at a private address.',
    ),
  container_uid: z
    .int()
    .min(1)
    .max(65_533)
    .optional()
    .describe(
      'User ID and group ID of all processes in containers. If omitted, 1000. Applies only to a server that runs as root; otherwise containers run with the user and primary group of the server.',
    ),
  exec_output_bytes: z
    .int()
    .min(1024)
    .max(64 * 1024 * 1024)
    .default(1024 * 1024)
    .describe('Maximum size of stdout, and of stderr, that `container exec` returns, in bytes.'),
  execs: execs
    .prefault({})
    .describe('Limits for `container exec`. A call above a limit fails with `exhausted`.'),
  terminals: terminals
    .prefault({})
    .describe('Limits for terminals (`./oubliette shell`). A terminal above a limit fails with `exhausted`.'),
  archives: archives
    .prefault({})
    .describe('Limits for copies of files (`./oubliette cp`). A copy above a limit fails with `exhausted`.'),
  heartbeat_seconds: z
    .number()
    .min(0.1)
    .max(60)
    .default(5)
    .describe(
      'Interval at which the server pings the supervisor of each container. After three unanswered pings, the connection is closed.',
    ),
  session_idle_minutes: z
    .number()
    .min(0.1)
    .default(720)
    .describe('Idle time after which a session is completed.'),
  hibernate_minutes: z
    .number()
    .min(0)
    .max(525_600)
    .default(10)
    .describe(
      'Idle time after which the process of an agent is stopped, if the agent can resume its conversation. The next message starts it again. With 0, it is stopped only when another session needs the memory.',
    ),
  reconcile_seconds: z
    .number()
    .min(1)
    .default(30)
    .describe('Interval at which the server reconciles the database with the container engine.'),
  shutdown_seconds: z
    .number()
    .min(1)
    .default(20)
    .describe('Time that running calls have to finish after SIGTERM.'),
  watchdog_seconds: z
    .int()
    .min(0)
    .max(3600)
    .default(60)
    .describe(
      'Time after which a server with a blocked event loop is killed, so that a service manager can restart it. 0 disables the watchdog.',
    ),
  agent_answer_seconds: z
    .number()
    .min(1)
    .max(3600)
    .default(60)
    .describe(
      'Time that an agent has to answer `initialize`. Opening a session can take twice as long. After that, the session fails.',
    ),
  agent_silence_minutes: z
    .number()
    .min(0.02)
    .max(10_080)
    .default(60)
    .describe(
      'Time after which an agent that sends nothing during a turn, with no running tool and no open permission request, is stopped and its session fails.',
    ),
  database_timeout_seconds: z
    .number()
    .min(1)
    .max(600)
    .default(10)
    .describe(
      'Maximum duration of a query, including the wait for a connection. After that, the call fails with `unavailable` and the connection is replaced.',
    ),
  audit_days: z.int().min(1).default(90).describe('Retention period of audit entries, in days.'),
  usage_days: z
    .int()
    .min(1)
    .max(36_500)
    .default(400)
    .describe('Retention period of the figures of `usage`, in days. Spending limits do not depend on it.'),
  metrics: z
    .boolean()
    .default(true)
    .describe('Prometheus metrics at `/metrics`. Without them the path does not exist.'),
  schedules: schedules.prefault({}).describe('Queue and run history of schedules.'),
  rate: rate
    .prefault({})
    .describe('Rate limits. An HTTP request above a limit receives 429 with `Retry-After`.'),
  oidc: oidc
    .optional()
    .describe('OpenID Connect issuer whose access tokens are accepted in addition to Oubliette tokens.'),
  log: log.prefault({}).describe('Logging to stderr.'),
})
/** The whole file, as parsed. */
export type ConfigFile = z.infer<typeof configSchema>
