// Long-lived streams (a session's GET stream, `subscriptions/listen`). Each counts against the open streams of its caller and
// ends with its token. A reader that does not keep up is disconnected instead of filling the memory; it may reconnect with
// its Last-Event-ID. When the server stops, all readers are disconnected with an error: many clients reconnect to a stream
// that broke, but not to one that ended.
import type { Caller } from '../auth/caller.ts'
import type { OpenStreams } from '../auth/open-streams.ts'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'

const maxUnreadBytes = 1024 * 1024

export interface WatchedStreams {
  /**
   * Returns the response of `answer`; a stream is ended with its token. Throws `exhausted` before `answer` is called. `left` is
   * aborted when the reader disconnects; `ended` is called once, however the stream ends.
   */
  watch(
    caller: Caller,
    left: AbortSignal,
    answer: () => Promise<Response>,
    ended?: () => void,
  ): Promise<Response>
}

type End = { now: (stopping?: boolean) => void }

const isStream = (response: Response) =>
  response.ok && response.headers.get('content-type')?.startsWith('text/event-stream') === true

export function createWatchedStreams(open: OpenStreams, log: Log): WatchedStreams {
  function watched(response: Response, over: () => boolean, end: End): Response {
    const reader = response.body!.getReader()
    let out: ReadableStreamDefaultController<Uint8Array> | undefined

    function finish(last: () => void) {
      if (!over()) return
      last()
      reader.cancel().catch((error: unknown) => log.debug('failed to end a stream cleanly', { error }))
    }
    end.now = (stopping) =>
      finish(() => (stopping ? out?.error(new Fault('unavailable', 'the server is stopping')) : out?.close()))

    async function pump(to: ReadableStreamDefaultController<Uint8Array>) {
      for (;;) {
        const next = await reader.read()
        if (next.done) return end.now()
        to.enqueue(next.value)
        if ((to.desiredSize ?? 0) < -maxUnreadBytes)
          return finish(() => to.error(new Fault('exhausted', 'the reader of this stream does not keep up')))
      }
    }

    const body = new ReadableStream<Uint8Array>(
      {
        start(controller) {
          out = controller
          pump(controller).catch((error: unknown) => finish(() => controller.error(error)))
        },
        cancel: () => finish(() => {}),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: 0 }),
    )
    return new Response(body, { status: response.status, headers: response.headers })
  }

  return {
    async watch(caller, left, answer, ended = () => {}) {
      let state: 'asked' | 'open' | 'over' = 'asked'
      const end: End = { now: () => {} }
      let ended_early = false
      const close = open.open(caller, (why) => {
        ended_early = true
        end.now(why === undefined)
      })
      const over = () => {
        const first = state === 'open'
        state = 'over'
        if (first) {
          close()
          ended()
        }
        return first
      }
      try {
        const response = await answer()
        if (!isStream(response)) return response
        state = 'open'
        const stream = watched(response, over, end)
        // The token ended, or the reader left, before there was a stream to end.
        if (ended_early || left.aborted) end.now()
        else left.addEventListener('abort', () => end.now(), { once: true })
        return stream
      } finally {
        if ((state as string) !== 'open') close()
      }
    },
  }
}
