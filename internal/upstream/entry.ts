// One upstream: opens its connection when it is used, closes it when it is idle, and decides when to try again after a failure.
//
//   configured ──use──▶ connecting ──▶ connected ──idle, restart──▶ configured
//                           │              │ lost, hung
//                           ▼              ▼
//                   degraded (tries again at the next use) ──some failures in a row──▶ error (fails at once until `retry_at`)
import { setTimeout as pause } from 'node:timers/promises'
import { InsufficientScopeError } from '@modelcontextprotocol/client'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { createBackoff, stableMs } from './backoff.ts'
import { type Connection, connect, type Era } from './connection/connect.ts'
import { createFairQueue } from './fair-queue.ts'
import { UpstreamFault, upstreamFault } from './faults.ts'
import { type Credentials, createCredentials } from './oauth/credentials.ts'
import { createHttpFetch } from './transport/http-fetch.ts'
import type {
  CallOptions,
  CallOutcome,
  CallRequest,
  Discovered,
  UpstreamSpec,
  UpstreamState,
  UpstreamStatus,
} from './upstream.ts'

export const discoverMs = 5_000
const connectMs = 20_000
const heartbeatMs = 30_000
const pingMs = 5_000
/** A server that was of the older era may be of the newer one after its update. */
const eraTrustMs = 60 * 60 * 1000

export type EntryDeps = {
  version: string
  log: Log
  changed(list_changed: boolean): void
}

type Attempt = { promise: Promise<Connection>; abort: AbortController; connection?: Connection }

export function createEntry(first: UpstreamSpec, deps: EntryDeps) {
  const log = deps.log.with({ upstream: first.name })
  let spec = first
  let current: Attempt | undefined
  let backoff = createBackoff()
  let reason: string | null = null
  let connected_at: number | undefined
  let era: { value: Era; at: number } | undefined
  let stderr: () => string[] = () => []
  let idle: NodeJS.Timeout | undefined
  let heartbeat: NodeJS.Timeout | undefined
  let users = 0
  let discovering: Promise<Discovered> | undefined
  let removed = false
  let credentials = credentialsOf(first)
  const schemas = new Map<string, Record<string, unknown>>()
  const queue = createFairQueue(first.concurrency, `upstream "${first.name}"`)

  function state(): UpstreamState {
    if (current?.connection) return reason === null ? 'connected' : 'degraded'
    if (current) return 'connecting'
    if (backoff.failures === 0) return reason === null ? 'configured' : 'error'
    return backoff.is_open ? 'error' : 'degraded'
  }

  function status(): UpstreamStatus {
    const time = (at: number | undefined) => (at === undefined ? null : new Date(at).toISOString())
    return {
      state: state(),
      credentials: credentials?.state() ?? 'none',
      reason,
      stderr: stderr(),
      failures: backoff.failures,
      retry_at: time(backoff.retry_at),
      connected_at: current?.connection ? time(connected_at) : null,
      protocol_version: current?.connection?.protocol_version ?? null,
    }
  }

  function credentialsOf({ name, transport, max_result_bytes }: UpstreamSpec): Credentials | undefined {
    if (transport.kind === 'stdio' || !transport.oauth) return undefined
    const { url, fetch, kind, oauth } = transport
    const limited = createHttpFetch({
      kind,
      url,
      headers: {},
      fetch,
      max_result_bytes,
      onStreamEnd: () => {},
    })
    const made = createCredentials(name, url, oauth, limited, () => {
      if (made === credentials) deps.changed(false)
    })
    made
      .load()
      .catch((error: unknown) => log.warn('failed to read the credentials of an upstream', { error }))
    return made
  }

  /** Nothing is sent while only a consent helps. */
  function checkCredentials(): void {
    const is = credentials?.state()
    if (is !== 'needs_reauth' && is !== 'revoked') return
    throw new UpstreamFault('unavailable', `upstream "${spec.name}" requires authorization (${is})`, {
      outcome: 'not_sent',
      hint: 'authorize it with mcp_server auth',
      needs_authorization: true,
    })
  }

  async function refused(error: unknown): Promise<void> {
    if (!(error instanceof UpstreamFault) || !error.needs_authorization) return
    const { cause } = error
    await credentials?.refuse(cause instanceof InsufficientScopeError ? cause.requiredScope : undefined)
  }

  function failed(why: string): void {
    backoff.failed()
    reason = why
    log.warn('failed to reach upstream', { reason: why, failures: backoff.failures })
    deps.changed(false)
  }

  function succeeded(): void {
    if (backoff.failures === 0 && reason === null) return
    backoff.succeeded()
    reason = null
    deps.changed(false)
  }

  function open(): Attempt {
    const abort = new AbortController()
    const opening = connect(spec, {
      version: deps.version,
      signal: abort.signal,
      timeout_ms: connectMs,
      known_era: era && Date.now() - era.at < eraTrustMs ? era.value : undefined,
      onListChanged: () => deps.changed(true),
      onAmbiguousInput: () => {
        log.warn('the upstream asks during one of several calls; calling it one at a time')
        queue.setLimit(1)
      },
      onStderr: (lines) => {
        stderr = lines
      },
      auth: credentials?.provider,
      schemas,
    })
    const attempt: Attempt = {
      abort,
      promise: opening.then(
        (connection) => {
          attempt.connection = connection
          if (current !== attempt) {
            void connection.close()
            throw new UpstreamFault('unavailable', `upstream "${spec.name}" was restarted`, {
              outcome: 'not_sent',
            })
          }
          opened(attempt, connection)
          return connection
        },
        async (error: unknown) => {
          const fault = upstreamFault(spec.name, error, false)
          await refused(fault)
          if (current === attempt) {
            current = undefined
            era = undefined
            failed(fault.message)
          }
          throw fault
        },
      ),
    }
    // Those who wait for it get the error.
    attempt.promise.catch(() => undefined)
    return attempt
  }

  function opened(attempt: Attempt, connection: Connection): void {
    connected_at = Date.now()
    era = { value: connection.era, at: era?.value === connection.era ? era.at : Date.now() }
    const stable = setTimeout(() => {
      if (current === attempt) succeeded()
    }, stableMs).unref()
    void connection.closed.then((why) => {
      clearTimeout(stable)
      if (current !== attempt) return
      current = undefined
      stopTimers()
      failed(`the connection was lost: ${why}`)
      void connection.close()
    })
    watch()
    deps.changed(false)
  }

  function stopTimers(): void {
    clearTimeout(idle)
    clearTimeout(heartbeat)
  }

  /** Between uses: closes an idle connection, and checks one that is kept. */
  function watch(): void {
    stopTimers()
    const connection = current?.connection
    if (!connection) return
    if (users === 0 && spec.idle_seconds > 0)
      idle = setTimeout(() => void stop().then(() => deps.changed(false)), spec.idle_seconds * 1000).unref()
    heartbeat = setTimeout(() => void check(connection), heartbeatMs).unref()
  }

  /** Ends a connection that does not answer. */
  async function check(connection: Connection): Promise<void> {
    clearTimeout(heartbeat)
    try {
      await connection.ping(AbortSignal.timeout(pingMs), pingMs)
    } catch (error) {
      // An error answer is an answer.
      const fault = upstreamFault(spec.name, error, true)
      if (fault.outcome !== 'answered' && current?.connection === connection) {
        current = undefined
        stopTimers()
        failed(`it does not answer: ${fault.message}`)
        await connection.close()
      }
    }
    if (current?.connection === connection)
      heartbeat = setTimeout(() => void check(connection), heartbeatMs).unref()
  }

  async function stop(): Promise<void> {
    const attempt = current
    current = undefined
    stopTimers()
    if (!attempt) return
    attempt.abort.abort(new Error('the connection is being closed'))
    const connection = attempt.connection ?? (await attempt.promise.catch(() => undefined))
    await connection?.close()
  }

  async function connected(signal: AbortSignal): Promise<Connection> {
    for (;;) {
      signal.throwIfAborted()
      if (removed) throw new Fault('not_found', `no upstream ${spec.id}`)
      await credentials?.load()
      checkCredentials()
      if (current) return await raced(current.promise, signal)
      const wait_ms = backoff.wait_ms()
      if (wait_ms === 0) {
        current = open()
        deps.changed(false)
      } else if (backoff.is_open) throw circuitOpen(wait_ms)
      else await pause(wait_ms, undefined, { signal })
    }
  }

  function circuitOpen(wait_ms: number): UpstreamFault {
    const seconds = Math.ceil(wait_ms / 1000)
    return new UpstreamFault(
      'unavailable',
      `upstream "${spec.name}" is unavailable after ${backoff.failures} failures: ${reason}`,
      {
        outcome: 'not_sent',
        hint: `the next attempt is made in ${seconds} s; mcp_server restart makes it at once`,
        retry_after_seconds: seconds,
      },
    )
  }

  async function using<T>(
    fair_key: string,
    signal: AbortSignal,
    timeout_ms: number,
    work: (connection: Connection) => Promise<T>,
  ): Promise<T> {
    if (backoff.is_open && !current && backoff.wait_ms() > 0) throw circuitOpen(backoff.wait_ms())
    const patience = AbortSignal.any([signal, AbortSignal.timeout(timeout_ms)])
    let leave: (() => void) | undefined
    try {
      leave = await queue.enter(fair_key, patience)
      const connection = await connected(patience)
      users++
      clearTimeout(idle)
      try {
        const result = await work(connection)
        succeeded()
        return result
      } catch (error) {
        if (error instanceof UpstreamFault && error.kind === 'timeout') void check(connection)
        await refused(error)
        throw error
      } finally {
        users--
        if (users === 0) watch()
      }
    } catch (error) {
      if (patience.aborted && !signal.aborted && !(error instanceof Fault))
        throw new UpstreamFault(
          'timeout',
          `upstream "${spec.name}" was not available within ${timeout_ms / 1000} s`,
          {
            outcome: 'not_sent',
            cause: error,
          },
        )
      if (error instanceof Fault) throw error
      throw upstreamFault(spec.name, error, false)
    } finally {
      leave?.()
    }
  }

  async function restart(): Promise<void> {
    await stop()
    backoff = createBackoff()
    reason = null
    era = undefined
    deps.changed(false)
  }

  function authorizable(): Credentials {
    if (credentials) return credentials
    throw new Fault('invalid', `upstream "${spec.name}" does not use OAuth`)
  }

  return {
    get spec() {
      return spec
    },
    status,
    async configure(next: UpstreamSpec): Promise<void> {
      const reconnect = next.transport !== spec.transport || next.max_result_bytes !== spec.max_result_bytes
      spec = next
      queue.setLimit(next.concurrency)
      if (!reconnect) {
        watch()
        return
      }
      backoff = createBackoff()
      reason = null
      era = undefined
      schemas.clear()
      credentials?.close()
      credentials = credentialsOf(next)
      await stop()
    },
    discover(signal: AbortSignal | undefined): Promise<Discovered> {
      discovering ??= (async () => {
        const deadline = AbortSignal.timeout(discoverMs)
        try {
          if (backoff.is_open && !current && backoff.wait_ms() > 0) throw circuitOpen(backoff.wait_ms())
          const connection = await connected(deadline)
          users++
          clearTimeout(idle)
          try {
            return await connection.discover(deadline, discoverMs)
          } finally {
            users--
            if (users === 0) watch()
          }
        } catch (error) {
          if (deadline.aborted)
            throw new UpstreamFault(
              'timeout',
              `upstream "${spec.name}" did not answer the discovery within ${discoverMs / 1000} s`,
              { outcome: 'not_sent', cause: error },
            )
          throw error instanceof Fault ? error : upstreamFault(spec.name, error, false)
        }
      })().finally(() => {
        discovering = undefined
      })
      return signal ? raced(discovering, signal) : discovering
    },
    call: (request: CallRequest, options: CallOptions): Promise<CallOutcome> => {
      const timeout_ms = (request.timeout_seconds ?? spec.timeout_seconds) * 1000
      return using(options.fair_key, options.signal, timeout_ms, (connection) =>
        connection.call(request, timeout_ms, options),
      )
    },
    request: (
      method: string,
      params: Record<string, unknown>,
      options: Pick<CallOptions, 'signal' | 'fair_key'>,
    ): Promise<Record<string, unknown>> => {
      const timeout = spec.timeout_seconds * 1000
      return using(options.fair_key, options.signal, timeout, async (connection) => {
        try {
          return await connection.request(method, params, { signal: options.signal, timeout })
        } catch (error) {
          throw upstreamFault(spec.name, error, true)
        }
      })
    },
    restart,
    async authorize(): Promise<{ url: string; state: string } | undefined> {
      return await authorizable().authorize()
    },
    async finishAuthorization(answer: { code: string; state: string; iss?: string }): Promise<void> {
      await authorizable().finish(answer)
      await restart()
    },
    async remove(): Promise<void> {
      removed = true
      credentials?.close()
      await stop()
    },
  }
}
export type Entry = ReturnType<typeof createEntry>

/** The work goes on when the signal is aborted: others may wait for it. */
async function raced<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([work, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
