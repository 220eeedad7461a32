// The git proxy: git in a container reaches the one remote of its project through it, and the remote's credential stays on the
// server. Guarantees: only a live session of that container, or a command that the server runs in it, has access; only the smart
// HTTP protocol of that remote can be used; the credential is sent to the remote's own origin only. The dependencies decide who
// holds a key and which remote a project has.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Transform } from 'node:stream'
import { LRUCache } from 'lru-cache'
import type { Credential } from '../config/models.ts'
import { Fault, type Kind, messageOf, toFault } from '../fault.ts'
import { createConnections } from '../lib/http-connections.ts'
import { createThrottledWarn } from '../lib/throttled-log.ts'
import type { Log } from '../log.ts'
import { createForward } from './forward.ts'
import { baseOf, isProxied, routeOf, type Service, secretForms } from './remote.ts'
import { scrubText } from './scrub.ts'
import { createSlots } from './slots.ts'

/** `holder` identifies the owner of the key: when it ends, its requests end. */
export type Holder = { holder: string; allowed: readonly Service[] }
export type Remote = { remote_url: string | null; credential: Credential | undefined }

export type GitProxyDeps = {
  log: Log
  /** Returns the holder of this key in this container. Throws `unauthenticated`. */
  admit(project_id: string, key: string): Promise<Holder>
  remote(project_id: string): Promise<Remote>
  /** Milliseconds that a request of this container has to wait; 0 accepts it. */
  throttle(project_id: string, weight: number): number
  /** For tests: time without data after which a request to the remote fails. */
  idle_timeout_ms?: number
}

export interface GitProxy {
  /** Takes over a connection that a container opened. */
  accept(project_id: string, socket: Socket): void
  /** Aborts the requests of a key that is no longer valid. */
  end(holder: string): void
  close(): void
}

const idleTimeoutMs = 120_000
/** Total time limit of a request. */
const maxRequestMs = 60 * 60_000
const maxConcurrent = 16
const slotWaitMs = 120_000
const maxRedirected = 1000
const maxThrottled = 10_000
const burstMs = 100
const bytesPerSecond = 64 * 1024 * 1024

// Git prints the text of an error, except with 401, where it prompts for a password instead.
const statusOf: Record<Kind, number> = {
  invalid: 400,
  unauthenticated: 403,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  exhausted: 429,
  unavailable: 503,
  timeout: 504,
  internal: 500,
}

const bearer = (request: IncomingMessage): string | undefined =>
  /^Bearer ([\w-]{1,200})$/.exec(request.headers.authorization ?? '')?.[1]

/**
 * Limits the rate of one container's git traffic, all requests and both directions together: forwarding bytes takes time on
 * the server's event loop, which all containers share.
 */
export function createThrottle(bytes_per_second: number, now: () => number = () => performance.now()) {
  /** By container: when the bytes it has sent so far are paid off at this rate. */
  const busy_until = new LRUCache<string, number>({ max: maxThrottled })

  return (project_id: string): Transform =>
    new Transform({
      transform(chunk: Buffer, _encoding, done) {
        const begin = Math.max(now(), busy_until.get(project_id) ?? 0)
        busy_until.set(project_id, begin + (chunk.length / bytes_per_second) * 1000)
        const wait_ms = begin - now() - burstMs
        if (wait_ms <= 0) done(null, chunk)
        else setTimeout(done, wait_ms, null, chunk)
      },
    })
}

export function createGitProxy(deps: GitProxyDeps): GitProxy {
  const { log } = deps
  const connections = createConnections()
  const slots = createSlots(maxConcurrent, slotWaitMs)
  const forward = createForward({ idle_timeout_ms: deps.idle_timeout_ms ?? idleTimeoutMs })
  const throttle = createThrottle(bytesPerSecond)
  const warn = createThrottledWarn(log)
  /** By holder: the controllers that end its requests. */
  const open_requests = new Map<string, Set<AbortController>>()
  /** Redirects of a remote on its own origin: later requests of the same command go to the new base. */
  const moved = new LRUCache<string, { remote_url: string; base: URL }>({ max: maxRedirected })
  const server = createServer({ noDelay: true, requestTimeout: 0 })

  function baseFor(project_id: string, remote_url: string): URL {
    const known = moved.get(project_id)
    return known?.remote_url === remote_url ? known.base : baseOf(remote_url)
  }

  function remember(project_id: string, remote_url: string, base: URL): void {
    if (base.href === baseOf(remote_url).href) moved.delete(project_id)
    else moved.set(project_id, { remote_url, base })
  }

  /** A signal that is aborted when the response closes, the holder's key ends, or the time limit is reached. */
  function requestScope(holder: string, response: ServerResponse): { signal: AbortSignal } & Disposable {
    const leave = new AbortController()
    const mine = open_requests.get(holder) ?? new Set()
    open_requests.set(holder, mine.add(leave))
    const timer = setTimeout(
      () =>
        leave.abort(new Fault('timeout', `the request took longer than ${maxRequestMs / 60_000} minutes`)),
      maxRequestMs,
    ).unref()
    const onClose = () => leave.abort(new Fault('unavailable', 'the client closed the connection'))
    response.once('close', onClose)
    return {
      signal: leave.signal,
      [Symbol.dispose]() {
        clearTimeout(timer)
        response.off('close', onClose)
        mine.delete(leave)
        if (mine.size === 0 && open_requests.get(holder) === mine) open_requests.delete(holder)
      },
    }
  }

  async function pass(project_id: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = bearer(request)
    if (key === undefined)
      throw new Fault('unauthenticated', 'missing session key', {
        hint: 'run git inside a session, whose environment configures the key',
      })
    const { holder, allowed } = await deps.admit(project_id, key)
    const route = routeOf(request.method, request.url)
    if (!route)
      throw new Fault('not_found', 'only git-upload-pack and git-receive-pack of the remote are supported', {
        hint: 'Git LFS, archives and other repositories are not supported',
      })
    if (!allowed.includes(route.service))
      throw new Fault('forbidden', `this key does not permit ${route.service}`)
    const { remote_url, credential } = await deps.remote(project_id)
    if (remote_url === null || !isProxied(remote_url))
      throw new Fault('not_found', 'the project has no http(s) remote')
    using scope = requestScope(holder, response)
    using _slot = await slots(project_id, scope.signal)
    const begun = performance.now()
    const base = baseFor(project_id, remote_url)
    try {
      const { base: found, bytes } = await forward.pass({
        route,
        base,
        credential,
        request,
        response,
        signal: scope.signal,
        throttle: () => throttle(project_id),
      })
      remember(project_id, remote_url, found)
      const ms = Math.round(performance.now() - begun)
      log.debug('git request', { project_id, service: route.service, method: route.method, bytes, ms })
    } catch (error) {
      // The remote may have moved again.
      moved.delete(project_id)
      if (!(error instanceof Fault)) throw error
      throw new Fault(error.kind, scrubText(error.message, secretForms(credential)), { hint: error.hint })
    }
  }

  function refuse(project_id: string, request: IncomingMessage, response: ServerResponse, thrown: unknown) {
    if (response.destroyed || response.headersSent) {
      log.debug('git request aborted', { project_id, reason: messageOf(thrown) })
      return void response.destroy()
    }
    const fault = toFault(thrown)
    const about = {
      project_id,
      kind: fault.kind,
      id: fault.id,
      reason: fault.message,
      method: request.method,
    }
    if (fault.kind === 'internal') log.error('failed to forward a git request', { ...about, error: thrown })
    else warn(project_id, 'git request refused', about)
    const text = `${fault.message}${fault.hint ? ` (${fault.hint})` : ''}\n`
    // The rest of the request is not read.
    response
      .writeHead(statusOf[fault.kind], { 'content-type': 'text/plain; charset=utf-8', connection: 'close' })
      .end(text)
  }

  server.on('request', (request, response) => {
    const project_id = connections.projectOf(request.socket)
    const ended = connections.begin(request.socket)
    if (project_id === undefined || !ended) return
    response.once('close', ended)
    const wait_ms = deps.throttle(project_id, 0)
    if (wait_ms > 0)
      return refuse(
        project_id,
        request,
        response,
        new Fault('exhausted', 'too many requests from this container'),
      )
    pass(project_id, request, response).catch((error: unknown) =>
      refuse(project_id, request, response, error),
    )
  })

  return {
    accept(project_id, socket) {
      if (connections.add(project_id, socket)) server.emit('connection', socket)
    },
    end(holder) {
      for (const leave of open_requests.get(holder) ?? [])
        leave.abort(new Fault('unauthenticated', 'the key of this request is no longer valid'))
    },
    close() {
      server.closeAllConnections()
      forward.close()
    },
  }
}
