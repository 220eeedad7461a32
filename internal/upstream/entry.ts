// One upstream: who may use its connection when, for how long, and with which credentials.
import { InsufficientScopeError } from '@modelcontextprotocol/client'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import type { Connection } from './connection/connect.ts'
import { createFairQueue } from './fair-queue.ts'
import { UpstreamFault, upstreamFault } from './faults.ts'
import { createLink, raced } from './link.ts'
import { type Credentials, createCredentials } from './oauth/credentials.ts'
import { createHttpFetch } from './transport/http-fetch.ts'
import type {
  CallOptions,
  CallOutcome,
  CallRequest,
  Discovered,
  UpstreamSpec,
  UpstreamStatus,
} from './upstream.ts'

const discoverMs = 5_000

export type EntryDeps = {
  version: string
  log: Log
  changed(list_changed: boolean): void
}

export function createEntry(first: UpstreamSpec, deps: EntryDeps) {
  const log = deps.log.with({ upstream: first.name })
  let spec = first
  let discovering: Promise<Discovered> | undefined
  /** The upstream asks questions that do not say to which call they belong. */
  let one_at_a_time = false
  const queue = createFairQueue(first.concurrency, `upstream "${first.name}"`)
  let credentials = credentialsOf(first)
  const link = createLink({
    version: deps.version,
    log,
    spec: () => spec,
    credentials: () => credentials,
    changed: deps.changed,
    refused,
    onAmbiguousInput: () => {
      log.warn('the upstream asks during one of several calls; calling it one at a time')
      one_at_a_time = true
      queue.setLimit(1)
    },
  })

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

  async function refused(error: unknown): Promise<void> {
    if (!(error instanceof UpstreamFault) || !error.needs_authorization) return
    const { cause } = error
    await credentials?.refuse(cause instanceof InsufficientScopeError ? cause.requiredScope : undefined)
  }

  function authorizable(): Credentials {
    if (credentials) return credentials
    throw new Fault('invalid', `upstream "${spec.name}" does not use OAuth`)
  }

  const status = (): UpstreamStatus => ({ ...link.status(), credentials: credentials?.state() ?? 'none' })

  /** Waits for a turn and for the connection, at most as long as the request itself may take. */
  async function inTurn<T>(
    { fair_key, signal }: Pick<CallOptions, 'signal' | 'fair_key'>,
    timeout_ms: number,
    work: (connection: Connection) => Promise<T>,
  ): Promise<T> {
    link.failFast()
    // A timer that ends with the wait: a signal with a time-out of its own would live on for each call.
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(new Error('no turn')), timeout_ms)
    const waiting = AbortSignal.any([signal, late.signal])
    const run = () =>
      link.using(waiting, (connection) => {
        clearTimeout(timer)
        return work(connection)
      })
    let leave: (() => void) | undefined
    try {
      leave = await queue.enter(fair_key, waiting)
      const result = await run().catch((error: unknown) => {
        if (error instanceof UpstreamFault && error.session_lost) return run()
        throw error
      })
      link.succeeded()
      return result
    } catch (error) {
      await refused(error)
      if (error instanceof Fault) throw error
      if (late.signal.aborted)
        throw new UpstreamFault(
          'timeout',
          `upstream "${spec.name}" was not available within ${timeout_ms / 1000} s`,
          { outcome: 'not_sent', cause: error },
        )
      throw upstreamFault(spec.name, error, false)
    } finally {
      clearTimeout(timer)
      leave?.()
    }
  }

  async function discoverNow(): Promise<Discovered> {
    const deadline = AbortSignal.timeout(discoverMs)
    try {
      link.failFast()
      return await link.using(deadline, (connection) => connection.discover(deadline, discoverMs))
    } catch (error) {
      if (deadline.aborted)
        throw new UpstreamFault(
          'timeout',
          `upstream "${spec.name}" did not answer the discovery within ${discoverMs / 1000} s`,
          { outcome: 'not_sent', cause: error },
        )
      const fault = error instanceof Fault ? error : upstreamFault(spec.name, error, false)
      await refused(fault)
      throw fault
    }
  }

  async function restart(): Promise<void> {
    await link.stop()
    link.reset()
    deps.changed(false)
  }

  return {
    status,
    restart,

    async configure(next: UpstreamSpec): Promise<void> {
      const same =
        next.transport === spec.transport || (next.revision !== undefined && next.revision === spec.revision)
      const transport = same ? spec.transport : next.transport
      const reconnect = !same || next.max_result_bytes !== spec.max_result_bytes
      spec = { ...next, transport }
      if (!same) one_at_a_time = false
      queue.setLimit(one_at_a_time ? 1 : next.concurrency)
      if (!reconnect) {
        link.watch()
        return
      }
      link.reset()
      link.forget()
      credentials?.close()
      credentials = credentialsOf(next)
      await link.stop()
    },

    discover(signal: AbortSignal | undefined): Promise<Discovered> {
      discovering ??= discoverNow().finally(() => {
        discovering = undefined
      })
      return signal ? raced(discovering, signal) : discovering
    },

    call(request: CallRequest, options: CallOptions): Promise<CallOutcome> {
      const timeout_ms = (request.timeout_seconds ?? spec.timeout_seconds) * 1000
      return inTurn(options, timeout_ms, (connection) => connection.call(request, timeout_ms, options))
    },

    request(
      method: string,
      params: Record<string, unknown>,
      options: Pick<CallOptions, 'signal' | 'fair_key'>,
    ): Promise<Record<string, unknown>> {
      const timeout = spec.timeout_seconds * 1000
      return inTurn(options, timeout, async (connection) => {
        try {
          return await connection.request(method, params, { signal: options.signal, timeout })
        } catch (error) {
          throw upstreamFault(spec.name, error, true)
        }
      })
    },

    authorize: async (): Promise<{ url: string; state: string } | undefined> =>
      await authorizable().authorize(),

    async finishAuthorization(answer: { code: string; state: string; iss?: string }): Promise<void> {
      await authorizable().finish(answer)
      await restart()
    },

    async remove(): Promise<void> {
      credentials?.close()
      await link.remove()
    },
  }
}
export type Entry = ReturnType<typeof createEntry>
