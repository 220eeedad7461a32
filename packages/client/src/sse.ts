// Server-Sent Events of one response.
import { createParser, type EventSourceMessage } from 'eventsource-parser'

/** Yields messages until the response ends. `onBytes` is called for everything that arrives, heartbeats included. */
export async function* messagesOf(
  body: ReadableStream<Uint8Array>,
  onBytes: () => void = () => undefined,
): AsyncGenerator<EventSourceMessage> {
  const decoder = new TextDecoder()
  let parsed: EventSourceMessage[] = []
  const parser = createParser({ onEvent: (message) => void parsed.push(message) })
  // A reader instead of `for await`: not all browsers can iterate over a stream.
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      onBytes()
      parser.feed(decoder.decode(value, { stream: true }))
      const messages = parsed
      parsed = []
      yield* messages
    }
  } finally {
    // Closes the connection if the consumer stops early. It fails if the connection is lost already.
    reader.cancel().catch(() => undefined)
  }
}
