// The model proxy: droids use their providers through it, and the providers' keys stay on the server. Guarantees: only a live
// session of the right container has access; only known paths of configured hosts can be reached; every request is parsed before
// it is sent and its maximum cost is reserved; answers are not buffered. The dependencies identify the session, set its cost
// limit and record its usage.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import type { Credential, HostedTool, Price } from '../config/models.ts'
import { Fault, toFault } from '../fault.ts'
import { createConnections } from '../lib/http-connections.ts'
import { createThrottledWarn } from '../lib/throttled-log.ts'
import type { Log } from '../log.ts'
import { createHolds, wholeBody } from './body.ts'
import { createForward } from './forward.ts'
import type { Inspection } from './inspect/inspect.ts'
import { createInspections } from './inspect/inspections.ts'
import { type Credentials, requireCredential } from './providers/credentials.ts'
import { providerError } from './providers/errors.ts'
import { isSigned, keyShown, type Outgoing, outgoing } from './providers/outgoing.ts'
import { type Prices, priceOf, type Worst, worstCase } from './providers/prices.ts'
import {
  allowedQuery,
  type Dialect,
  isProvider,
  type ProviderName,
  providerNames,
  providers,
  type Route,
  routeOf,
} from './providers/providers.ts'
import { createScrubber } from './scrub.ts'
import { chargeOf, type ModelUsage, type Outcome, usageEvent } from './usage/charge.ts'

export type Asking = {
  project_id: string
  session_id: string
  credential_refs: readonly string[]
  network: 'none' | 'internal' | 'open'
}

/** Exactly one of these is called, once. */
export type Reservation = { settle(usage: ModelUsage): Promise<void>; release(): Promise<void> }

export type ModelProxyDeps = {
  credentials: Credentials
  prices: Prices
  hosted_tools: readonly HostedTool[]
  log: Log
  /** Returns the session that holds this key in this container. Throws `unauthenticated`. */
  admit(project_id: string, key: string): Promise<Asking>
  /** Reserves this amount of the project's cost limit before the request is sent. Throws `exhausted` or `unavailable`. */
  reserve(asking: Asking, what: { provider: ProviderName; model: string; usd: number }): Promise<Reservation>
  /** Milliseconds that a request of this container and weight has to wait; 0 accepts it. */
  throttle(project_id: string, weight: number): number
}

export interface ModelProxy {
  /** Takes over a connection that a container opened. */
  accept(project_id: string, socket: Socket): void
  close(): Promise<void>
}

/** A long body is parsed in a thread of its own, so it weighs less than a message of the same length. */
const bytesInWeight = 8

const closingMs = 5000

/** An inspected request that may be sent. */
type Ready = { to: Outgoing; body: Buffer; cost: { model: string; price: Price; worst: Worst } | undefined }
type Charged = { reserved?: NonNullable<Ready['cost']> & { reservation: Reservation }; outcome: Outcome }
type Asked = {
  asking: Asking
  provider: ProviderName
  route: Route
  credential: Credential
  query: [string, string][]
}

export function createModelProxy(deps: ModelProxyDeps): ModelProxy {
  const { log } = deps
  const connections = createConnections()
  const open_requests = new Set<Promise<void>>()
  const unpriced = new Set<string>()
  const holds = createHolds()
  const warn = createThrottledWarn(log)
  const inspections = createInspections()
  const { begin, passOn, close } = createForward()
  const server = createServer({ noDelay: true, requestTimeout: 0, keepAliveTimeout: 120_000 })

  function priceFor(provider: ProviderName, model: string): Price {
    const { prices, unpriced_models, default_price } = deps.prices
    const price = priceOf(prices, model)
    if (price) return price
    if (unpriced_models === 'refuse')
      throw new Fault('forbidden', `model "${model.slice(0, 200)}" has no price`, {
        hint: 'add it to prices in the config of the server',
      })
    if (!unpriced.has(model) && unpriced.size < 1000) {
      unpriced.add(model)
      log.warn('the config has no price for a model; using default_price', { provider, model })
    }
    return default_price
  }

  function costOfAll(provider: ProviderName, route: Route, inspection: Inspection): Ready['cost'] {
    if (route.free) return undefined
    const model = route.model ?? inspection.model
    if (model === undefined) throw new Fault('invalid', 'the request names no model')
    const price = priceFor(provider, model)
    return { model, price, worst: worstCase(price, deps.prices.estimates, inspection) }
  }

  /** The whole request, read and inspected. */
  async function prepare(
    request: IncomingMessage,
    asked: Asked,
    hold: (bytes: number) => void,
  ): Promise<Ready> {
    const { asking, provider, route, credential, query } = asked
    const { headers } = request
    const method = request.method ?? 'GET'
    const parts = await wholeBody(request, hold)
    const { endpoint, path } = route
    if (endpoint === undefined)
      return {
        to: outgoing(provider, credential, { method, path, query, headers }),
        body: Buffer.alloc(0),
        cost: undefined,
      }
    const inspection = await inspections.inspect(asking.project_id, parts, {
      endpoint,
      allowed: asking.network === 'open' ? deps.hosted_tools : [],
      hash: isSigned(provider, credential),
    })
    if (inspection.removed.length > 0)
      warn(asking.project_id, 'removed hosted tools from a model request', {
        session_id: asking.session_id,
        tools: [...new Set(inspection.removed)].slice(0, 10),
      })
    const body = { bytes: inspection.body, sha256: inspection.sha256 }
    return {
      to: outgoing(provider, credential, { method, path, query, headers, body }),
      body: inspection.body,
      cost: costOfAll(provider, route, inspection),
    }
  }

  /** Settles when the provider begins to answer; the body is released then. */
  async function send(
    request: IncomingMessage,
    response: ServerResponse,
    asked: Asked,
    charged: Charged,
  ): Promise<IncomingMessage> {
    const { asking, provider } = asked
    using hold = holds(asking.project_id)
    const { to, body, cost } = await prepare(request, asked, hold.add)
    if (cost) {
      const what = { provider, model: cost.model, usd: cost.worst.usd }
      charged.reserved = { ...cost, reservation: await deps.reserve(asking, what) }
    }
    const { outcome } = charged
    const incoming = await begin(to, body, response, () => {
      outcome.sent = true
    })
    outcome.status = incoming.statusCode
    return incoming
  }

  /** Charges the usage of the request, or its worst case if the usage is unknown, whatever its outcome. */
  async function settle({ asking, provider }: Asked, { reserved, outcome }: Charged): Promise<void> {
    if (!reserved) return
    const { model, price, worst, reservation } = reserved
    const answered_by = outcome.usage?.model ?? model
    const charge = chargeOf(outcome, priceOf(deps.prices.prices, answered_by) ?? price, worst)
    try {
      if (charge) await reservation.settle(usageEvent(provider, answered_by, charge))
      else await reservation.release()
    } catch (error) {
      log.error('failed to record model usage; its reservation will be charged', {
        session_id: asking.session_id,
        charge,
        error,
      })
    }
  }

  function identify(request: IncomingMessage, url: URLSearchParams): Promise<Asking> {
    const project_id = connections.projectOf(request.socket)
    const key = keyShown(request.headers, url)
    if (project_id === undefined || key === undefined)
      throw new Fault('unauthenticated', 'missing session key', {
        hint: 'send the value of OUBLIETTE_API_KEY',
      })
    return deps.admit(project_id, key)
  }

  async function pass(
    request: IncomingMessage,
    response: ServerResponse,
    provider: ProviderName,
    { path, query }: { path: string; query: URLSearchParams },
  ): Promise<void> {
    const asking = await identify(request, query)
    const method = request.method ?? 'GET'
    const route = routeOf(providers[provider], method, path)
    if (!route)
      throw new Fault('not_found', `${method} ${path.slice(0, 200)} is not supported for ${provider}`)
    const credential = requireCredential(deps.credentials, asking.credential_refs, provider)
    const asked = { asking, provider, route, credential, query: allowedQuery(providers[provider], query) }
    const begun = performance.now()
    const charged: Charged = { outcome: { sent: false, status: undefined, usage: undefined, whole: false } }
    try {
      const incoming = await send(request, response, asked, charged)
      const answered = await passOn(incoming, response, {
        scrubber: createScrubber(credential),
        elsewhere: (parts) => inspections.usage(asking.project_id, parts),
      })
      Object.assign(charged.outcome, answered)
    } finally {
      await settle(asked, charged)
    }
    const { status, whole } = charged.outcome
    log.debug('model request completed', {
      session_id: asking.session_id,
      provider,
      path: route.path,
      status,
      whole,
      ms: Math.round(performance.now() - begun),
    })
  }

  function refuse(
    request: IncomingMessage,
    response: ServerResponse,
    dialect: Dialect,
    thrown: unknown,
  ): void {
    const fault = toFault(thrown)
    if (response.destroyed) return
    const project_id = connections.projectOf(request.socket)
    const about = {
      project_id,
      kind: fault.kind,
      id: fault.id,
      reason: fault.message,
      path: request.url?.split('?')[0],
    }
    if (fault.kind === 'internal') log.error('failed to forward a model request', { ...about, error: thrown })
    else warn(project_id ?? '', 'model request refused', about)
    if (response.headersSent) return void response.destroy()
    const { status, headers, body } = providerError(dialect, fault)
    // The rest of the request is not read.
    response.writeHead(status, { ...headers, connection: 'close' }).end(body)
  }

  /** Refuses pipelined requests, and answers 503 with a retry time if the container exceeds its rate. */
  function admitted(request: IncomingMessage, response: ServerResponse): boolean {
    const { socket } = request
    const project_id = connections.projectOf(socket)
    const ended = connections.begin(socket)
    if (project_id === undefined || !ended) return false
    response.once('close', ended)
    const bytes = Number(request.headers['content-length']) || 0
    const wait_ms = deps.throttle(project_id, bytes / bytesInWeight)
    if (wait_ms === 0) return true
    const retry_after_seconds = Math.ceil(wait_ms / 1000)
    const fault = new Fault('unavailable', 'too many requests from this container', { retry_after_seconds })
    refuse(request, response, 'openai', fault)
    return false
  }

  server.on('request', (request, response) => {
    if (!admitted(request, response)) return
    // The client probes whether the server is alive.
    if (request.method === 'HEAD' && request.url === '/') return void response.writeHead(204).end()
    const [target = '', ...rest] = (request.url ?? '').split('?')
    const name = target.split('/')[1] ?? ''
    if (!target.startsWith('/') || !isProvider(name))
      return refuse(
        request,
        response,
        'openai',
        new Fault('not_found', `no model provider "${name.slice(0, 50)}"`, {
          hint: `use one of ${providerNames.join(', ')}`,
        }),
      )
    const where = { path: target.slice(name.length + 1), query: new URLSearchParams(rest.join('?')) }
    const passing = pass(request, response, name, where)
      .catch((error: unknown) => refuse(request, response, providers[name].dialect, error))
      .finally(() => open_requests.delete(passing))
    open_requests.add(passing)
  })

  return {
    accept(project_id, socket) {
      if (connections.add(project_id, socket)) server.emit('connection', socket)
    },
    /** Open requests are aborted and charged. */
    async close() {
      server.closeAllConnections()
      close()
      inspections.close()
      const timeout = new AbortController()
      await Promise.race([
        Promise.allSettled(open_requests),
        setTimeout(closingMs, undefined, { ref: false, signal: timeout.signal }).catch(() => undefined),
      ])
      timeout.abort()
    },
  }
}
