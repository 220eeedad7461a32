// The model gateway: droids speak to their providers through it, and their keys stay here. It promises that only a living
// session of the right container gets through, that only known paths of configured hosts can be reached, that nothing is
// forwarded once a project's money is spent, and that an answer is neither held back nor changed. Whose session it is,
// how much it has cost and where that is written down is left to those who are given to it.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Price } from '../config-models.ts'
import { Fault, toFault } from '../fault.ts'
import { createConnections } from '../http-connections.ts'
import type { Log } from '../log.ts'
import { sparsely } from '../log-sparsely.ts'
import { askForUsage, wholeBody } from './body.ts'
import { type Credentials, requireCredential } from './credentials.ts'
import { createForward } from './forward.ts'
import { createHolds } from './holds.ts'
import { keyShown, type Outgoing, outgoing } from './outgoing.ts'
import { costOf, priceOf } from './prices.ts'
import { providerError } from './provider-error.ts'
import {
  allowedPath,
  type Dialect,
  isProvider,
  type ProviderName,
  providerNames,
  providers,
} from './providers.ts'
import type { Reading } from './usage.ts'

export type Asking = { session_id: string; credential_refs: readonly string[] }
export type ModelUsage = {
  provider: ProviderName
  model: string
  input_tokens: number
  output_tokens: number
  cache_read_tokens: number
  cache_write_tokens: number
  /** Null: neither the provider nor the config has a price for it. */
  cost_usd: number | null
}

export type GatewayDeps = {
  credentials: Credentials
  prices: Record<string, Price>
  log: Log
  /**
   * Who holds this key in this container, and may it spend more? `unrecorded_usd` is what its project has cost beyond what
   * was recorded when this was asked. Throws `unauthenticated` or `exhausted`.
   */
  admit(project_id: string, key: string, unrecorded_usd: number): Promise<Asking>
  record(session_id: string, usage: ModelUsage): Promise<void>
  /** How many milliseconds a request of this container, of this weight, has to wait yet; 0 takes it. */
  pace(project_id: string, weight: number): number
}

export interface Gateway {
  /** Takes a connection over that a container opened. */
  accept(project_id: string, socket: Socket): void
  close(): Promise<void>
}

/** A body is passed on and not parsed, so it weighs less than a message of the same length. */
const bytesInWeight = 8

const pathModel = /^\/(?:v1(?:beta)?\/models|model)\/([^/:]+(?::\d+)?)/

export function createGateway(deps: GatewayDeps): Gateway {
  const { log } = deps
  const connections = createConnections()
  /** By project: what is being written, and what it cost. */
  const recording = new Map<string, Map<Promise<void>, number>>()
  const unpriced = new Set<string>()
  const holds = createHolds()
  const warn = sparsely(log)
  const { begin, passOn, close } = createForward()
  const server = createServer({ noDelay: true, requestTimeout: 0, keepAliveTimeout: 120_000 })

  function usageOf(provider: ProviderName, path: string, read: Reading): ModelUsage {
    const model = read.model ?? decodeURIComponent(pathModel.exec(path)?.[1] ?? 'unknown')
    const cost = costOf(priceOf(deps.prices, model), read)
    if (cost === undefined && !unpriced.has(model)) {
      unpriced.add(model)
      log.warn('the config has no price for a model: what it costs is not counted', { provider, model })
    }
    return {
      provider,
      model,
      input_tokens: read.input + read.cache_read + read.cache_write,
      output_tokens: read.output,
      cache_read_tokens: read.cache_read,
      cache_write_tokens: read.cache_write,
      cost_usd: cost ?? null,
    }
  }

  function record(project_id: string, session_id: string, usage: ModelUsage): void {
    const under = recording.get(project_id) ?? new Map<Promise<void>, number>()
    const writing = deps
      .record(session_id, usage)
      .catch((error: unknown) =>
        log.error('the usage of a session is not recorded', { session_id, usage, error }),
      )
      .finally(() => {
        under.delete(writing)
        if (under.size === 0) recording.delete(project_id)
      })
    recording.set(project_id, under.set(writing, usage.cost_usd ?? 0))
  }

  /** What was answered a moment ago counts already, though it may not be written yet; nobody waits for that. */
  async function admit(project_id: string, key: string): Promise<Asking> {
    const under = recording.get(project_id)
    if (!under) return await deps.admit(project_id, key, 0)
    const unrecorded_usd = [...under.values()].reduce((sum, cost) => sum + cost, 0)
    try {
      return await deps.admit(project_id, key, unrecorded_usd)
    } catch (error) {
      if (!(error instanceof Fault) || error.kind !== 'exhausted') throw error
      // It may have been written while we looked, and then it counted twice.
      await Promise.all(under.keys())
      return await deps.admit(project_id, key, 0)
    }
  }

  /** The body lives no longer than this. */
  async function send(
    project_id: string,
    request: IncomingMessage,
    response: ServerResponse,
    prepare: (body: Buffer) => { to: Outgoing; body: Buffer },
  ): Promise<IncomingMessage> {
    using hold = holds(project_id)
    const { to, body } = prepare(await wholeBody(request, hold.add))
    return await begin(to, body, response)
  }

  async function pass(
    request: IncomingMessage,
    response: ServerResponse,
    provider: ProviderName,
    url: URL,
  ): Promise<void> {
    const project_id = connections.projectOf(request.socket)
    const key = keyShown(request.headers, url.searchParams)
    if (project_id === undefined || key === undefined)
      throw new Fault('unauthenticated', 'no session key', { hint: 'it is in OUBLIETTE_API_KEY' })
    const asking = await admit(project_id, key)
    const method = request.method ?? 'GET'
    const asked = url.pathname.slice(provider.length + 1)
    const path = allowedPath(providers[provider], method, asked)
    if (path === undefined)
      throw new Fault('not_found', `${method} ${asked.slice(0, 200)} is not passed on to ${provider}`)
    const credential = requireCredential(deps.credentials, asking.credential_refs, provider)
    const begun = performance.now()
    const incoming = await send(project_id, request, response, (given) => {
      const body = path === '/chat/completions' ? askForUsage(given) : given
      const how = { method, path, query: url.searchParams, headers: request.headers }
      return { to: outgoing(provider, credential, how, body), body }
    })
    const { status, usage, whole } = await passOn(incoming, response)
    if (usage && status < 300) record(project_id, asking.session_id, usageOf(provider, path, usage))
    log.debug('a model answered', {
      session_id: asking.session_id,
      provider,
      path,
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
    if (fault.kind === 'internal') log.error('the model gateway failed', { ...about, error: thrown })
    else warn(project_id ?? '', 'a model request is refused', about)
    if (response.headersSent) return void response.destroy()
    const { status, headers, body } = providerError(dialect, fault)
    // What is left of the request is not waited for.
    response.writeHead(status, { ...headers, connection: 'close' }).end(body)
  }

  /** No requests ahead of their answers, and no more of a container than its pace: else 503, and try again. */
  function admitted(request: IncomingMessage, response: ServerResponse): boolean {
    const { socket } = request
    const project_id = connections.projectOf(socket)
    const ended = connections.begin(socket)
    if (project_id === undefined || !ended) return false
    response.once('close', ended)
    const bytes = Number(request.headers['content-length']) || 0
    const wait_ms = deps.pace(project_id, bytes / bytesInWeight)
    if (wait_ms === 0) return true
    const retry_after_seconds = Math.ceil(wait_ms / 1000)
    const fault = new Fault('unavailable', 'this container asks too often', { retry_after_seconds })
    refuse(request, response, 'openai', fault)
    return false
  }

  server.on('request', (request, response) => {
    if (!admitted(request, response)) return
    // The client asks whether we are there.
    if (request.method === 'HEAD' && request.url === '/') return void response.writeHead(204).end()
    const url = URL.parse(`http://gateway${request.url}`)
    const name = url?.pathname.split('/')[1] ?? ''
    if (!url || !isProvider(name))
      return refuse(
        request,
        response,
        'openai',
        new Fault('not_found', `no model provider "${name.slice(0, 50)}"`, {
          hint: `one of ${providerNames.join(', ')}`,
        }),
      )
    pass(request, response, name, url).catch((error: unknown) =>
      refuse(request, response, providers[name].dialect, error),
    )
  })

  return {
    accept(project_id, socket) {
      if (connections.add(project_id, socket)) server.emit('connection', socket)
    },
    async close() {
      server.closeAllConnections()
      close()
      await Promise.all([...recording.values()].flatMap((writing) => [...writing.keys()]))
    },
  }
}
