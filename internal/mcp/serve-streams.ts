// Streams that stay open until somebody ends them (a session's GET stream, `subscriptions/listen`). Each is known with
// its caller, so that it can be ended from here, and a reader that does not keep up is cut off instead of filling the
// memory: it may come back with its Last-Event-ID.
import type { Caller } from '../auth/caller.ts'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import type { Audience } from './serve-notify.ts'

const max_unread_bytes = 1024 * 1024

export interface WatchedStreams {
  /** The same response; `ended` is called once, however the stream ends. */
  watch(response: Response, caller: Caller, ended?: () => void): Response
  end(which: Audience): void
}

export function createWatchedStreams(log: Log): WatchedStreams {
  const open = new Set<{ caller: Caller; end: () => void }>()

  function watch(response: Response, caller: Caller, ended = () => {}): Response {
    if (!response.body) return response
    const reader = response.body.getReader()
    let out: ReadableStreamDefaultController<Uint8Array> | undefined
    const stream = { caller, end: () => finish(() => out?.close()) }

    function finish(last: () => void) {
      if (!open.delete(stream)) return
      ended()
      last()
      reader.cancel().catch((error: unknown) => log.debug('a stream did not end cleanly', { error }))
    }

    async function pump(to: ReadableStreamDefaultController<Uint8Array>) {
      for (;;) {
        const next = await reader.read()
        if (!open.has(stream)) return
        if (next.done) return stream.end()
        to.enqueue(next.value)
        if ((to.desiredSize ?? 0) < -max_unread_bytes)
          return finish(() => to.error(new Fault('exhausted', 'the reader of this stream does not keep up')))
      }
    }

    open.add(stream)
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
    watch,
    end(which) {
      for (const stream of open) if (which(stream.caller)) stream.end()
    },
  }
}
