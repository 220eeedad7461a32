// The open event streams of this server, by caller: they are ended at once when the server stops, and those of a
// token when it is revoked.
import type { Caller } from '../auth/caller.ts'
import type { Log } from '../log.ts'
import { type ServerSentEvent, sse } from './sse.ts'

export interface Streams {
  /** `source` gets the signal that ends the stream: the reader left, the token was revoked, the server stops. */
  open(
    caller: Caller,
    left: AbortSignal,
    source: (signal: AbortSignal) => AsyncIterable<ServerSentEvent[]>,
  ): Response
  end(which: (caller: Caller) => boolean): void
}

export function createStreams(options: { heartbeat_seconds: number; log: Log }): Streams {
  const open = new Map<AbortController, Caller>()
  return {
    open(caller, left, source) {
      const ending = new AbortController()
      open.set(ending, caller)
      ending.signal.addEventListener('abort', () => open.delete(ending), { once: true })
      const end = () => ending.abort()
      if (left.aborted) end()
      else left.addEventListener('abort', end, { once: true })
      return sse(ended(source(ending.signal), end), { ...options, signal: ending.signal })
    },
    end(which) {
      for (const [ending, caller] of open) if (which(caller)) ending.abort()
    },
  }
}

/** A source that comes to its own end is forgotten as well. */
async function* ended(events: AsyncIterable<ServerSentEvent[]>, end: () => void) {
  try {
    yield* events
  } finally {
    end()
  }
}
