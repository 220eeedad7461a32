// The git proxy: git in a container reaches the one remote of its project through it, and the remote's credential stays here.
// It promises that only a living session of that container, or a command that the server itself runs in it, gets through; that
// nothing but the smart HTTP protocol of that one remote can be reached; and that the credential is sent to the remote's own
// origin only. Who holds a key and which remote a project has is left to those who are given to it.
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

/** `holder` names whose key it is: when that ends, its requests end. */
export type Holder = { holder: string; allowed: readonly Service[] }
export type Remote = { remote_url: string | null; credential: Credential | undefined }

export type GitProxyDeps = {
  log: Log
  /** Who holds this key in this container? Throws `unauthenticated`. */
  admit(project_id: string, key: string): Promise<Holder>
  remote(project_id: string): Promise<Remote>
  /** How many milliseconds a request of this container has to wait yet; 0 takes it. */
  pace(project_id: string, weight: number): number
  /** For tests: a remote that is silent for this long is given up. */
  silence_ms?: number
}

export interface GitProxy {
  /** Takes a connection over that a container opened. */
  accept(project_id: string, socket: Socket): void
  /** Ends the requests of a key that is not valid any more. */
  end(holder: string): void
  close(): void
}

const silenceMs = 120_000
/** However steadily a remote sends, this is the end of it. */
const longestMs = 60 * 60_000
const atOnce = 16
const patienceMs = 120_000
const remembered = 1000
const throttled = 10_000
const burstMs = 100
const bytesPerSecond = 64 * 1024 * 1024

// Git shows the text of a refusal, except with 401, where it asks for a password instead.
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
  /** By container: until when what it has moved takes, at this rate. */
  const busy_until = new LRUCache<string, number>({ max: throttled })

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
  const slots = createSlots(atOnce, patienceMs)
  const forward = createForward({ silence_ms: deps.silence_ms ?? silenceMs })
  const throttle = createThrottle(bytesPerSecond)
  const warn = createThrottledWarn(log)
  /** By holder: what ends its requests. */
  const under_way = new Map<string, Set<AbortController>>()
  /** Where a remote redirected to, on its own origin: later requests of the same command go there. */
  const moved = new LRUCache<string, { remote_url: string; base: URL }>({ max: remembered })
  const server = createServer({ noDelay: true, requestTimeout: 0 })

  function baseFor(project_id: string, remote_url: string): URL {
    const known = moved.get(project_id)
    return known?.remote_url === remote_url ? known.base : baseOf(remote_url)
  }

  function remember(project_id: string, remote_url: string, base: URL): void {
    if (base.href === baseOf(remote_url).href) moved.delete(project_id)
    else moved.set(project_id, { remote_url, base })
  }

  /** Ends with the response, with the holder's key, and after the longest time; whichever comes first. */
  function leash(holder: string, response: ServerResponse): { signal: AbortSignal } & Disposable {
    const leave = new AbortController()
    const mine = under_way.get(holder) ?? new Set()
    under_way.set(holder, mine.add(leave))
    const timer = setTimeout(
      () => leave.abort(new Fault('timeout', `the request took longer than ${longestMs / 60_000} minutes`)),
      longestMs,
    ).unref()
    const onClose = () => leave.abort(new Fault('unavailable', 'the client closed the connection'))
    response.once('close', onClose)
    return {
      signal: leave.signal,
      [Symbol.dispose]() {
        clearTimeout(timer)
        response.off('close', onClose)
        mine.delete(leave)
        if (mine.size === 0 && under_way.get(holder) === mine) under_way.delete(holder)
      },
    }
  }

  async function pass(project_id: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const key = bearer(request)
    if (key === undefined)
      throw new Fault('unauthenticated', 'no session key', {
        hint: 'git in a session sends it by itself, from its environment',
      })
    const { holder, allowed } = await deps.admit(project_id, key)
    const route = routeOf(request.method, request.url)
    if (!route)
      throw new Fault('not_found', 'only git-upload-pack and git-receive-pack of the remote are passed on', {
        hint: 'Git LFS, archives and other repositories are not',
      })
    if (!allowed.includes(route.service))
      throw new Fault('forbidden', `this key may not be used for ${route.service}`)
    const { remote_url, credential } = await deps.remote(project_id)
    if (remote_url === null || !isProxied(remote_url))
      throw new Fault('not_found', 'the project has no http(s) remote')
    using held = leash(holder, response)
    using _slot = await slots(project_id, held.signal)
    const begun = performance.now()
    const base = baseFor(project_id, remote_url)
    try {
      const { base: found, bytes } = await forward.pass({
        route,
        base,
        credential,
        request,
        response,
        signal: held.signal,
        throttle: () => throttle(project_id),
      })
      remember(project_id, remote_url, found)
      const ms = Math.round(performance.now() - begun)
      log.debug('git request', { project_id, service: route.service, method: route.method, bytes, ms })
    } catch (error) {
      // It may have moved once more.
      moved.delete(project_id)
      if (!(error instanceof Fault)) throw error
      throw new Fault(error.kind, scrubText(error.message, secretForms(credential)), { hint: error.hint })
    }
  }

  function refuse(project_id: string, request: IncomingMessage, response: ServerResponse, thrown: unknown) {
    if (response.destroyed || response.headersSent) {
      log.debug('git request cut short', { project_id, reason: messageOf(thrown) })
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
    if (fault.kind === 'internal') log.error('failed to pass on a git request', { ...about, error: thrown })
    else warn(project_id, 'git request refused', about)
    const text = `${fault.message}${fault.hint ? ` (${fault.hint})` : ''}\n`
    // What is left of the request is not waited for.
    response
      .writeHead(statusOf[fault.kind], { 'content-type': 'text/plain; charset=utf-8', connection: 'close' })
      .end(text)
  }

  server.on('request', (request, response) => {
    const project_id = connections.projectOf(request.socket)
    const ended = connections.begin(request.socket)
    if (project_id === undefined || !ended) return
    response.once('close', ended)
    const wait_ms = deps.pace(project_id, 0)
    if (wait_ms > 0)
      return refuse(project_id, request, response, new Fault('exhausted', 'this container asks too often'))
    pass(project_id, request, response).catch((error: unknown) =>
      refuse(project_id, request, response, error),
    )
  })

  return {
    accept(project_id, socket) {
      if (connections.add(project_id, socket)) server.emit('connection', socket)
    },
    end(holder) {
      for (const leave of under_way.get(holder) ?? [])
        leave.abort(new Fault('unauthenticated', 'the key of this request is not valid any more'))
    },
    close() {
      server.closeAllConnections()
      forward.close()
    },
  }
}
