// Server-Sent Events from any source. Events are requested only when the connection can take them, a comment is sent as a
// heartbeat, and the source is stopped when the reader disconnects or stalls, or when `signal` is aborted. A source that
// waits must watch a signal itself: an async generator cannot be stopped in the middle of an `await`.
import type { Caller } from '../auth/caller.ts'
import type { OpenStreams } from '../auth/open-streams.ts'
import { Fault, toFault } from '../fault.ts'
import type { Log } from '../log.ts'

export type ServerSentEvent = { id?: string; event?: string; data: string }
export type SseOptions = {
  heartbeat_seconds: number
  /** A reader that reads nothing for this long is disconnected. */
  stalled_seconds: number
  signal: AbortSignal
  /** Called once, when nothing more will be sent. */
  closed?: () => void
  log: Log
}

const encoder = new TextEncoder()
const lines = (field: string, value: string) => `${field}: ${value.replace(/\r\n|\r|\n/g, `\n${field}: `)}\n`

function formatEvent({ id, event, data }: ServerSentEvent): string {
  return `${id === undefined ? '' : lines('id', id)}${event === undefined ? '' : lines('event', event)}${lines('data', data)}\n`
}

export function sse(events: AsyncIterable<ServerSentEvent[]>, options: SseOptions): Response {
  const { signal, log } = options
  const source = events[Symbol.asyncIterator]()
  let next: Promise<IteratorResult<ServerSentEvent[]>> | undefined
  let over = false
  let wake = () => {}
  let stalled: NodeJS.Timeout | undefined

  function stop() {
    if (over) return
    over = true
    clearTimeout(stalled)
    signal.removeEventListener('abort', onAbort)
    options.closed?.()
    source.return?.().catch((error: unknown) => log.warn('failed to stop an event source', { error }))
    wake()
  }
  let onAbort = () => {}
  const cut = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    if (over) return
    stop()
    controller.error(new Fault('timeout', `the reader read nothing for ${options.stalled_seconds} s`))
  }

  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        onAbort = () => {
          stop()
          controller.close()
        }
        controller.enqueue(encoder.encode(': open\n\n'))
        if (signal.aborted) onAbort()
        else signal.addEventListener('abort', onAbort, { once: true })
      },
      // Resolves when something was written or the stream has ended; until then it is not called again.
      pull(controller) {
        clearTimeout(stalled)
        const pulled = Promise.withResolvers<void>()
        const beat = setTimeout(() => write(': \n\n'), options.heartbeat_seconds * 1000)
        wake = () => {
          clearTimeout(beat)
          pulled.resolve()
        }
        const settled = wake
        const write = (text: string) => {
          if (over || wake !== settled) return
          controller.enqueue(encoder.encode(text))
          // The reader takes what is written before `pull` is called again.
          stalled = setTimeout(() => cut(controller), options.stalled_seconds * 1000).unref()
          settled()
        }
        const end = (last = '') => {
          if (over) return
          if (last) controller.enqueue(encoder.encode(last))
          stop()
          controller.close()
        }
        next ??= source.next()
        const asked = next
        asked.then(
          (result) => {
            if (next !== asked || wake !== settled) return
            next = undefined
            if (result.done) end()
            else write(result.value.map(formatEvent).join(''))
          },
          (thrown: unknown) => {
            if (over) return
            const fault = toFault(thrown)
            log.error('failed to read from an event source', { id: fault.id, error: thrown })
            end(formatEvent({ event: 'error', data: JSON.stringify({ error: fault.shape() }) }))
          },
        )
        return pulled.promise
      },
      cancel: stop,
    },
    { highWaterMark: 1 },
  )
  return new Response(body, {
    headers: {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-cache, no-transform',
      'X-Accel-Buffering': 'no',
    },
  })
}

export interface Streams {
  /** `source` gets the signal that ends the stream: the reader disconnected, the token ended, or the server stops. */
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
      // The token may have ended just now.
      if (left.aborted || ending.signal.aborted) {
        close()
        end()
      } else left.addEventListener('abort', end, { once: true })
      return sse(source(ending.signal), { ...how, signal: ending.signal, closed: end })
    },
  }
}
