// The HTTP server: routes, and what applies to every request. Each request gets an id, is refused if its Host or Origin is
// not allowed, and fails with one shape of error. A caller is identified only by the bearer token of the request itself.
// The MCP protocol is left to `internal/mcp`, checking credentials to `internal/auth`.
import type { HttpBindings } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { cors } from 'hono/cors'
import { methodNotAllowed } from 'hono/method-not-allowed'
import type { Caller } from '../auth/caller.ts'
import type { Lifetimes } from '../auth/lifetimes.ts'
import type { OpenStreams } from '../auth/open-streams.ts'
import { couldAllow } from '../auth/scope.ts'
import { createSlots } from '../auth/slots.ts'
import type { Config } from '../config/load.ts'
import { Fault } from '../fault.ts'
import { newRequestId } from '../ids.ts'
import type { Log } from '../log.ts'
import { type EventSource, projectStream, sessionStream } from '../tools/declarations/internal.ts'
import type { Door } from '../tools/door.ts'
import type { CallContext } from '../tools/tool.ts'
import { receiveArchive, sendArchive } from './archive.ts'
import {
  type Authenticate,
  bounded,
  challenge,
  createCallerCheck,
  metadataPath,
  type Rate,
  requireNotRevoked,
  resourceMetadata,
} from './auth.ts'
import { BodyTooLarge, boundBody, readBody } from './body.ts'
import { errorResponse, logged } from './errors.ts'
import { createGuard } from './guard.ts'
import { type MetricsSource, maySkipToken, metricsResponse, routeOf } from './metrics.ts'
import { type Checks, createReadiness } from './ready.ts'
import { createNodeServer, listen, stop } from './server.ts'
import { createStreams } from './sse.ts'
import { createTerminalUpgrade, isTerminalUpgrade } from './terminal/upgrade.ts'

/** The MCP endpoint, as this room needs it. */
interface McpEndpoint {
  fetch(
    request: Request,
    asked: { caller: Caller; request_id: string },
    body: Uint8Array | undefined,
  ): Promise<Response>
  endStreams(): Promise<void>
  close(): Promise<void>
}

/** `ended`: the credential of the caller has ended since it was checked. */
export type Env = { Bindings: HttpBindings; Variables: { request_id: string; ended?: Fault } }

type ConsentAnswer = { state: string; code?: string; error?: string; iss?: string }

export type HttpOptions = {
  config: Pick<
    Config,
    | 'address'
    | 'allowed_hosts'
    | 'allowed_origins'
    | 'max_body_bytes'
    | 'max_connections'
    | 'oidc'
    | 'terminals'
  >
  authenticate: Authenticate
  /** `failures` by address, `requests` by token. */
  rate: { failures: Rate; requests: Rate }
  /** Maximum number of concurrent requests of one token. */
  requests_at_once: number
  lifetimes: Lifetimes
  streams: OpenStreams
  mcp: McpEndpoint
  /** Opens event streams; without it there are none. */
  door?: Pick<Door, 'run'>
  /** Ends the OAuth consent that this state belongs to; without it there are none. */
  finishConsent?: (answer: ConsentAnswer) => Promise<{ name: string }>
  readiness: Checks
  /** Identifies this process to the commands of its home; not a secret. */
  server_id?: string
  /** What does not respond although the server is ready; shown without a token. */
  degraded?: () => Promise<string[]>
  /** Without it, there is no `/metrics`. */
  metrics?: MetricsSource | undefined
  log: Log
}

export interface Http {
  listen(): Promise<{ url: string }>
  /** Ends open streams at once, waits for running requests until the deadline, then cuts them off. */
  close(deadline_seconds: number): Promise<void>
}

/** How long a client may read the response of a request that ended with its token; then the connection is closed. */
const lastResponseMs = 2_000

const addressOf = (c: Context<Env>) => c.env.incoming.socket.remoteAddress ?? 'unknown'

export function createHttp(options: HttpOptions): Http {
  const { config, mcp, lifetimes, log } = options
  const guard = createGuard(config)
  const ready = createReadiness(options.readiness, log)
  const check = createCallerCheck(options)
  const streams = createStreams({ open: options.streams, heartbeat_seconds: 15, stalled_seconds: 60, log })
  const under_way = createSlots({
    what: 'requests',
    per_caller: options.requests_at_once,
    in_all: config.max_connections,
    setting: 'rate.per_token_at_once of the config',
  })
  const app = new Hono<Env>()
  let closing = false

  /** The caller. The request counts until its response is sent, and is cut off if the credential ends before that. */
  async function callerOf(c: Context<Env>): Promise<Caller> {
    const { outgoing } = c.env
    const caller = await check(c.req.header('authorization'), addressOf(c))
    const free = under_way.take(caller)
    let cut: NodeJS.Timeout | undefined
    const unwatch = lifetimes.watch(caller, (why) => {
      c.set('ended', why)
      cut = setTimeout(() => outgoing.destroy(), lastResponseMs).unref()
    })
    const over = () => {
      free()
      unwatch()
      clearTimeout(cut)
    }
    // The client may have disconnected while its token was looked up.
    if (outgoing.closed || outgoing.destroyed) over()
    else outgoing.once('close', over)
    return caller
  }

  const { metrics } = options
  if (metrics)
    app.use(async (c, next) => {
      const from = performance.now()
      await next()
      metrics.request({
        route: routeOf(c.req.path),
        method: c.req.raw.method,
        status: c.res.status,
        seconds: (performance.now() - from) / 1000,
      })
    })
  app.use(async (c, next) => {
    const request_id = newRequestId()
    c.set('request_id', request_id)
    c.env.outgoing.setHeader('X-Request-Id', request_id)
    const { host, origin } = c.env.incoming.headers
    guard({ host, origin }, c.env.incoming.socket.localAddress)
    if (closing) throw new Fault('unavailable', 'the server is stopping', { retry_after_seconds: 5 })
    const from = performance.now()
    await next()
    log.debug('request', {
      request_id,
      method: c.req.method,
      path: c.req.path,
      status: c.res.status,
      ms: Math.round(performance.now() - from),
    })
  })
  if (config.allowed_origins.length > 0)
    app.use(
      cors({
        origin: config.allowed_origins,
        exposeHeaders: ['Mcp-Session-Id', 'X-Request-Id', 'WWW-Authenticate', 'Retry-After'],
      }),
    )

  app.use(methodNotAllowed({ app, onMethodNotAllowed: notAllowed }))

  const mcpMethods = ['GET', 'POST', 'DELETE']
  app.on(mcpMethods, '/mcp', async (c) => {
    // Hono answers HEAD by running GET, which would open a stream that no client reads.
    if (c.req.raw.method === 'HEAD') return notAllowed(c, mcpMethods)
    const caller = await callerOf(c)
    const body = c.req.method === 'POST' ? await readBody(c.env.incoming, config.max_body_bytes) : undefined
    if (body) boundBody(options.rate.requests, caller, body)
    // The credential may have ended while the body was read.
    if (c.var.ended) throw c.var.ended
    if (body)
      await requireNotRevoked(options.authenticate, caller, c.req.header('authorization'), addressOf(c))
    return mcp.fetch(c.req.raw, { caller, request_id: c.var.request_id }, body)
  })
  const { door } = options
  if (door) {
    const open: Record<
      string,
      (context: CallContext, id: string, since_index: number) => Promise<EventSource>
    > = {
      sessions: (context, session_id, since_index) =>
        door.run(sessionStream, context, { session_id, since_index }),
      projects: (context, project_id, since_index) =>
        door.run(projectStream, context, { project_id, since_index }),
    }
    for (const [kind, source] of Object.entries(open))
      app.get(`/${kind}/:id/events`, async (c) => {
        const caller = await callerOf(c)
        const since = sinceOf(c.req.header('last-event-id') ?? c.req.query('since_index'))
        const { signal } = c.req.raw
        const { request_id } = c.var
        const context = { caller, request_id, via: 'http', signal, progress: () => undefined } as const
        return streams.open(caller, signal, await source(context, c.req.param('id'), since))
      })
    const archive = '/workspaces/:id/archive'
    const archiveMethods = ['GET', 'PUT']
    app.on(archiveMethods, archive, async (c) => {
      if (c.req.raw.method === 'HEAD') return notAllowed(c, archiveMethods)
      const caller = await callerOf(c)
      const left = new AbortController()
      c.env.outgoing.once('close', () => left.abort())
      const { request_id } = c.var
      const context = {
        caller,
        request_id,
        via: 'http',
        signal: left.signal,
        progress: () => undefined,
      } as const
      return c.req.method === 'GET' ? sendArchive(c, door, context, log) : receiveArchive(c, door, context)
    })
  }
  const { finishConsent } = options
  // The browser of a person who consented to the use of an upstream server returns here. The state in it is the credential.
  if (finishConsent)
    app.get('/mcp-servers/consent', async (c) => {
      const address = c.env.incoming.socket.remoteAddress ?? 'unknown'
      bounded(options.rate.failures, address, 'too many requests without a valid token from this address')
      const { state, code, error, iss } = c.req.query()
      if (!state || state.length > 500) throw new Fault('invalid', 'the address has no valid state')
      const given = { ...(code ? { code } : {}), ...(error ? { error } : {}), ...(iss ? { iss } : {}) }
      const { name } = await finishConsent({ state, ...given })
      c.header('Cache-Control', 'no-store')
      return c.text(`MCP server "${name}" is authorized. You can close this window.`)
    })
  for (const path of ['/healthz', '/readyz'])
    app.use(path, async (c, next) => {
      if (options.server_id) c.env.outgoing.setHeader('Oubliette-Server-Id', options.server_id)
      await next()
    })
  app.get('/healthz', (c) => c.json({ status: 'ok' }))
  app.get('/readyz', async (c) => {
    const { fault, missing, refused } = await ready()
    // The state is logged when it changes, not with every request.
    if (fault) return errorResponse(fault, { fields: { status: 'not_ready', missing, refused } })
    // The next round of checks finds a database that fails in between.
    const degraded = (await options.degraded?.().catch(() => [])) ?? []
    return c.json({ status: 'ready', ...(degraded.length > 0 ? { degraded } : {}) })
  })
  if (metrics)
    app.get('/metrics', async (c) => {
      if (c.req.header('authorization') !== undefined || !maySkipToken(c.env.incoming)) {
        const { scope } = await callerOf(c)
        if (!couldAllow(scope, 'admin:read'))
          throw new Fault('forbidden', '/metrics needs the scope admin or admin:ro')
      }
      return await metricsResponse(metrics)
    })
  const { oidc } = config
  if (oidc)
    for (const path of [metadataPath, `${metadataPath}/mcp`])
      app.get(path, (c) => c.json(resourceMetadata(oidc, c.req.header('host') ?? '')))

  app.notFound((c) =>
    fail(c, new Fault('not_found', `no route for ${c.req.method} ${c.req.path.slice(0, 200)}`)),
  )
  app.onError((thrown, c) => fail(c, thrown))

  function fail(c: Context<Env>, thrown: unknown): Response {
    const fields = { request_id: c.var.request_id, method: c.req.method, path: c.req.path.slice(0, 200) }
    const fault = logged(thrown, log, fields)
    // The rest of a body that is too large is not read.
    if (fault instanceof BodyTooLarge)
      return errorResponse(fault, { status: 413, headers: { Connection: 'close' } })
    if (fault.kind !== 'unauthenticated') return errorResponse(fault)
    const presented = c.req.header('authorization') !== undefined
    const header = challenge(oidc, c.req.header('host') ?? '', presented)
    return errorResponse(fault, { headers: { 'WWW-Authenticate': header } })
  }

  function notAllowed(c: Context<Env>, methods: string[]): Response {
    const allow = methods.filter((method) => method !== 'HEAD').join(', ')
    const fault = new Fault('invalid', `method ${c.req.raw.method} is not allowed at ${c.req.path}`, {
      hint: `use ${allow}`,
    })
    return errorResponse(fault, { status: 405, headers: { Allow: allow } })
  }

  /** A reader that reconnects sends its last id; without one it gets the whole history. */
  function sinceOf(given: string | undefined): number {
    if (given === undefined || given === '') return -1
    if (/^(-1|\d{1,15})$/.test(given)) return Number(given)
    throw new Fault('invalid', 'since_index and Last-Event-ID must be integers of at least -1')
  }

  const terminals =
    door &&
    createTerminalUpgrade({
      guard,
      door,
      log,
      streams: options.streams,
      idle_minutes: config.terminals.idle_minutes,
      challenge: (host, presented) => challenge(oidc, host, presented),
      check(...credential) {
        if (closing) throw new Fault('unavailable', 'the server is stopping', { retry_after_seconds: 5 })
        return check(...credential)
      },
    })
  const server = createNodeServer(app, {
    max_connections: config.max_connections,
    upgrade: terminals && { wanted: isTerminalUpgrade, accept: terminals },
    log,
  })
  return {
    listen: () => listen(server, config.address),
    async close(deadline_seconds) {
      closing = true
      const stopped = stop(server, deadline_seconds)
      await mcp.endStreams()
      await stopped
      await mcp.close()
    },
  }
}
