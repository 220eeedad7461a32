// Event streams over HTTP. How many there may be, and when they end with their token, is decided by `auth/open-streams.ts`.
import type { Caller } from '../auth/caller.ts'
import type { OpenStreams } from '../auth/open-streams.ts'
import type { Log } from '../log.ts'
import { type ServerSentEvent, sse } from './sse.ts'

export interface Streams {
  /** `source` gets the signal that ends the stream: the reader left, the token ended, the server stops. */
  open(
    caller: Caller,
    left: AbortSignal,
    source: (signal: AbortSignal) => AsyncIterable<ServerSentEvent[]>,
  ): Response
}

export function createStreams(options: {
  open: OpenStreams
  heartbeat_seconds: number
  stalled_seconds: number
  log: Log
}): Streams {
  const { open, ...how } = options
  return {
    open(caller, left, source) {
      const ending = new AbortController()
      const end = () => ending.abort()
      const close = open.open(caller, end)
      ending.signal.addEventListener('abort', close, { once: true })
      // Its token may have ended in this very moment.
      if (left.aborted || ending.signal.aborted) {
        close()
        end()
      } else left.addEventListener('abort', end, { once: true })
      return sse(source(ending.signal), { ...how, signal: ending.signal, closed: end })
    },
  }
}
