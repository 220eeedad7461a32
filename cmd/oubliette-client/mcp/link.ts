// A droid's connection to the server, kept open as long as the program runs. A request survives the loss of its connection:
// it is repeated on the next one with the same `call_id`, by which the server recognises a call that is still open.
import { randomUUID } from 'node:crypto'
import { Fault } from '../../../internal/fault.ts'
import { createLog } from '../../../internal/log.ts'
import type { Peer, Progress } from '../../../internal/protocol/peer.ts'
import { protocolVersion } from '../../../internal/protocol/wire.ts'
import { socketOf } from '../environment.ts'
import { keepConnected } from '../supervise/uplink.ts'

export interface Link {
  request(
    method: string,
    params: Record<string, unknown>,
    options: { signal: AbortSignal; patience_ms?: number; on_progress?: (update: Progress) => void },
  ): Promise<unknown>
}

/** Refusals that a new connection does not change. */
const final = new Set(['unauthenticated', 'forbidden', 'invalid', 'conflict'])

export function openLink(env: NodeJS.ProcessEnv, signal: AbortSignal, on_tools_changed: () => void): Link {
  const api_key = env.OUBLIETTE_API_KEY
  if (!api_key)
    throw new Fault('unauthenticated', 'OUBLIETTE_API_KEY is not set', {
      hint: 'run this in a process of a session, which has the variable set',
    })
  let peer: Peer | undefined
  let met = false
  let next = Promise.withResolvers<Peer>()
  next.promise.catch(() => {})
  const renew = () => {
    next = Promise.withResolvers<Peer>()
    next.promise.catch(() => {})
  }

  void keepConnected({
    socket: socketOf(env),
    handlers: { tools_changed: on_tools_changed },
    hello: () => ({ role: 'droid', protocol: protocolVersion, api_key }),
    log: createLog({ level: 'error' }),
    signal,
    connected(to) {
      peer = to
      next.resolve(to)
      // Changes during the disconnection were not announced.
      if (met) on_tools_changed()
      met = true
      void to.closed.then(() => {
        peer = undefined
        renew()
      })
    },
    failed(error) {
      if (!(error instanceof Fault) || !final.has(error.kind)) return
      next.reject(error)
      renew()
    },
  })

  async function connected(stop: AbortSignal, patience_ms: number | undefined): Promise<Peer> {
    if (peer?.open) return peer
    const waits: Promise<Peer>[] = [next.promise]
    const { promise: stopped, reject } = Promise.withResolvers<never>()
    const onAbort = () => reject(stop.reason)
    stop.addEventListener('abort', onAbort, { once: true })
    waits.push(stopped)
    const timer =
      patience_ms === undefined
        ? undefined
        : setTimeout(() => reject(new Fault('unavailable', 'the server is unreachable')), patience_ms)
    try {
      stop.throwIfAborted()
      return await Promise.race(waits)
    } finally {
      clearTimeout(timer)
      stop.removeEventListener('abort', onAbort)
    }
  }

  return {
    async request(method, params, { signal: stop, patience_ms, on_progress }) {
      const call = method.endsWith('tool') ? { ...params, call_id: randomUUID() } : params
      for (;;) {
        const to = await connected(stop, patience_ms)
        try {
          return await to.request(method, call, { signal: stop, ...(on_progress ? { on_progress } : {}) })
        } catch (error) {
          const lost = !to.open && error instanceof Fault && error.kind === 'unavailable'
          if (!lost || stop.aborted) throw error
        }
      }
    },
  }
}
