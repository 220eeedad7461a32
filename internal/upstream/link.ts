// The connection of one upstream: opened when it is used, closed when it is idle, checked while it is open, and opened again after
// a failure when the time for it has come.
//
//   configured ──use──▶ connecting ──▶ connected ──idle, restart──▶ configured
//                           │              │ lost, hung
//                           ▼              ▼
//                   degraded (tries again at the next use) ──some failures in a row──▶ error (fails at once until `retry_at`)
import { setTimeout as pause } from 'node:timers/promises'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { createBackoff, stableMs } from './backoff.ts'
import { type Connection, connect, type Era } from './connection/connect.ts'
import { UpstreamFault, upstreamFault } from './faults.ts'
import type { Credentials } from './oauth/credentials.ts'
import type { UpstreamSpec, UpstreamState, UpstreamStatus } from './upstream.ts'

const connectMs = 20_000
const heartbeatMs = 30_000
const pingMs = 5_000
/** A server that was of the older era may be of the newer one after its update. */
const eraTrustMs = 60 * 60 * 1000

export type LinkDeps = {
  version: string
  log: Log
  spec(): UpstreamSpec
  credentials(): Credentials | undefined
  changed(list_changed: boolean): void
  onAmbiguousInput(): void
  /** The upstream refuses its credentials. */
  refused(fault: UpstreamFault): Promise<void>
}

type Attempt = { promise: Promise<Connection>; abort: AbortController; connection?: Connection }

export function createLink({
  version,
  log,
  spec,
  credentials,
  changed,
  onAmbiguousInput,
  refused,
}: LinkDeps) {
  let current: Attempt | undefined
  let backoff = createBackoff()
  let reason: string | null = null
  let connected_at: number | undefined
  let era: { value: Era; at: number } | undefined
  let stderr: () => string[] = () => []
  let idle: NodeJS.Timeout | undefined
  let heartbeat: NodeJS.Timeout | undefined
  let users = 0
  let removed = false
  /** Input schemas of the tools that were discovered last. */
  const schemas = new Map<string, Record<string, unknown>>()

  function state(): UpstreamState {
    if (current?.connection) return reason === null ? 'connected' : 'degraded'
    if (current) return 'connecting'
    if (backoff.failures === 0) return 'configured'
    return backoff.is_open ? 'error' : 'degraded'
  }

  function status(): Omit<UpstreamStatus, 'credentials'> {
    const time = (at: number | undefined) => (at === undefined ? null : new Date(at).toISOString())
    return {
      state: state(),
      reason,
      stderr: stderr(),
      failures: backoff.failures,
      retry_at: time(backoff.retry_at),
      connected_at: current?.connection ? time(connected_at) : null,
      protocol_version: current?.connection?.protocol_version ?? null,
    }
  }

  function failed(why: string): void {
    backoff.failed()
    reason = why
    log.warn('failed to reach upstream', { reason: why, failures: backoff.failures })
    changed(false)
  }

  function succeeded(): void {
    if (backoff.failures === 0 && reason === null) return
    backoff.succeeded()
    reason = null
    changed(false)
  }

  function open(): Attempt {
    const abort = new AbortController()
    const opening = connect(spec(), {
      version,
      signal: abort.signal,
      timeout_ms: connectMs,
      known_era: era && Date.now() - era.at < eraTrustMs ? era.value : undefined,
      onListChanged: () => changed(true),
      onAmbiguousInput,
      onStderr: (lines) => {
        stderr = lines
      },
      auth: credentials()?.provider,
      schemas,
    })
    const attempt: Attempt = {
      abort,
      promise: opening.then(
        (connection) => {
          attempt.connection = connection
          if (current !== attempt) {
            void connection.close()
            throw new UpstreamFault('unavailable', `upstream "${spec().name}" was restarted`, {
              outcome: 'not_sent',
            })
          }
          opened(attempt, connection)
          return connection
        },
        async (error: unknown) => {
          const fault = upstreamFault(spec().name, error, false)
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
      drop(`the connection was lost: ${why}`)
      void connection.close()
    })
    watch()
    changed(false)
  }

  function drop(why: string): void {
    current = undefined
    stopTimers()
    failed(why)
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
    const { idle_seconds } = spec()
    if (users === 0 && idle_seconds > 0)
      idle = setTimeout(() => void stop().then(() => changed(false)), idle_seconds * 1000).unref()
    heartbeat = setTimeout(() => void check(connection), heartbeatMs).unref()
  }

  /** Ends a connection that does not answer. */
  async function check(connection: Connection): Promise<void> {
    clearTimeout(heartbeat)
    try {
      await connection.ping(AbortSignal.timeout(pingMs), pingMs)
    } catch (error) {
      // An error answer is an answer.
      const fault = upstreamFault(spec().name, error, true)
      if (fault.outcome !== 'answered' && current?.connection === connection) {
        drop(`it does not answer: ${fault.message}`)
        await connection.close()
      }
    }
    if (current?.connection === connection)
      heartbeat = setTimeout(() => void check(connection), heartbeatMs).unref()
  }

  /** Not a failure: the next use begins a new session. */
  async function lost(connection: Connection): Promise<void> {
    if (current?.connection === connection) await stop()
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

  /** Throws at once while there is nothing to wait for. */
  function failFast(): void {
    const wait_ms = backoff.wait_ms()
    if (!backoff.is_open || current || wait_ms === 0) return
    const seconds = Math.ceil(wait_ms / 1000)
    throw new UpstreamFault(
      'unavailable',
      `upstream "${spec().name}" is unavailable after ${backoff.failures} failures: ${reason}`,
      {
        outcome: 'not_sent',
        hint: `the next attempt is made in ${seconds} s; mcp_server restart makes it at once`,
        retry_after_seconds: seconds,
      },
    )
  }

  /** Nothing is sent while only a consent helps. */
  async function checkCredentials(): Promise<void> {
    await credentials()?.load()
    const is = credentials()?.state()
    if (is !== 'needs_reauth' && is !== 'revoked') return
    throw new UpstreamFault('unavailable', `upstream "${spec().name}" requires authorization (${is})`, {
      outcome: 'not_sent',
      hint: 'authorize it with mcp_server auth',
      needs_authorization: true,
    })
  }

  async function connected(signal: AbortSignal): Promise<Connection> {
    for (;;) {
      signal.throwIfAborted()
      if (removed) throw new Fault('not_found', `no upstream ${spec().id}`)
      await checkCredentials()
      if (current) return await raced(current.promise, signal)
      failFast()
      const wait_ms = backoff.wait_ms()
      if (wait_ms > 0) await pause(wait_ms, undefined, { signal })
      else {
        current = open()
        changed(false)
      }
    }
  }

  return {
    status,
    failFast,
    /** Connects if necessary. The connection is not closed as idle while the work runs. */
    async using<T>(signal: AbortSignal, work: (connection: Connection) => Promise<T>): Promise<T> {
      const connection = await connected(signal)
      users++
      clearTimeout(idle)
      try {
        return await work(connection)
      } catch (error) {
        if (error instanceof UpstreamFault && error.session_lost) await lost(connection)
        // It may be the connection, or only this request.
        else if (error instanceof UpstreamFault && error.outcome !== 'answered') void check(connection)
        throw error
      } finally {
        users--
        if (users === 0) watch()
      }
    },
    succeeded,
    watch,
    stop,
    /** Forgets what was learned from failures. */
    reset(): void {
      backoff = createBackoff()
      reason = null
      era = undefined
    },
    forget: () => schemas.clear(),
    async remove(): Promise<void> {
      removed = true
      await stop()
    },
  }
}

/** The work goes on when the signal is aborted: others may wait for it. */
export async function raced<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
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
