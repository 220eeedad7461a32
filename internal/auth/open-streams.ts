// All long-lived streams of all rooms: counted per token and per server, and ended when the credential expires or is revoked,
// or when the server stops.
import type { Fault } from '../fault.ts'
import type { Caller } from './caller.ts'
import type { Lifetimes } from './lifetimes.ts'
import { createSlots } from './slots.ts'

export interface OpenStreams {
  /**
   * Takes a slot; throws `exhausted` if there is none. `end` is called at most once, without a reason when the server
   * stops. Returns a function that frees the slot when the stream has ended.
   */
  open(caller: Caller, end: (why?: Fault) => void): () => void
  endAll(): void
  /** Streams that are open now. */
  count(): number
}

export function createOpenStreams(options: {
  per_token: number
  per_server: number
  lifetimes: Lifetimes
}): OpenStreams {
  const { per_token, per_server, lifetimes } = options
  const slots = createSlots({
    what: 'streams',
    per_caller: per_token,
    in_all: per_server,
    setting: 'streams of the config',
  })
  const open = new Set<() => void>()
  return {
    open(caller, end) {
      const free = slots.take(caller)
      const stop = () => end()
      open.add(stop)
      const unwatch = lifetimes.watch(caller, end)
      return () => {
        open.delete(stop)
        unwatch()
        free()
      }
    },
    count: () => open.size,
    endAll() {
      for (const stop of [...open]) stop()
    },
  }
}
