// HTTP requests to the server, through `node:http`: `fetch` takes longer to load than a whole command may take.
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http'

// An import statement would evaluate every export of the module, and `http.WebSocket` loads the implementation of `fetch`.
const { request } = process.getBuiltinModule('node:http')

type Options = {
  method?: string
  headers?: OutgoingHttpHeaders
  body?: string
  signal?: AbortSignal
  /** Called with the open request, which it can destroy. */
  sent?: (destroy: (error: Error) => void) => void
}

/** Resolves with the status and headers; the body is read from the message. */
export function send(url: URL, { body, sent, ...options }: Options = {}): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    // Without an agent, the connection closes with its response: a connection of a restarted server is never reused.
    const outgoing = request(url, { ...options, agent: false }, resolve)
    outgoing.on('error', reject)
    sent?.((error) => outgoing.destroy(error))
    outgoing.end(body)
  })
}

export async function textOf(incoming: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of incoming.setEncoding('utf8')) text += chunk
  return text
}

export const isEventStream = ({ headers }: IncomingMessage): boolean =>
  String(headers['content-type']).startsWith('text/event-stream')

/** The data of each Server-Sent Event. */
export async function* eventsOf(incoming: IncomingMessage): AsyncGenerator<string> {
  const { createParser } = await import('eventsource-parser')
  const received: string[] = []
  const parser = createParser({ onEvent: ({ data }) => received.push(data) })
  for await (const chunk of incoming.setEncoding('utf8')) {
    parser.feed(chunk)
    yield* received.splice(0)
  }
}
