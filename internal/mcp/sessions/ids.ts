// The ids of the running requests of one session of the older eras. The SDK finds the stream of a response by its id alone:
// of two requests with the same id, the first would never be answered, or would get the response of the other.
import type { RequestId, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server'

type Message = { id?: unknown; method?: unknown } | null | undefined

const keyOf = (id: unknown) => `${typeof id} ${id}`

export function requestIds(body: unknown): RequestId[] {
  const messages = (Array.isArray(body) ? body : [body]) as Message[]
  return messages.flatMap((message) =>
    typeof message?.method === 'string' && (typeof message.id === 'string' || typeof message.id === 'number')
      ? [message.id]
      : [],
  )
}

const idsIn = (body: unknown): string[] => requestIds(body).map(keyOf)

export interface OpenIds {
  /** False if a request with one of the ids is running; then none is taken. */
  take(body: unknown): boolean
  /** The requests will not be answered. */
  release(body: unknown): void
  /** Resolves when no request is running. */
  settled(): Promise<void>
}

export function watchIds(transport: WebStandardStreamableHTTPServerTransport): OpenIds {
  const open = new Set<string>()
  let waiting: (() => void)[] = []
  const close = (id: string) => {
    open.delete(id)
    if (open.size > 0) return
    for (const go of waiting) go()
    waiting = []
  }
  const send = transport.send.bind(transport)
  transport.send = async (message, options) => {
    try {
      await send(message, options)
    } finally {
      if (!('method' in message) && 'id' in message) close(keyOf(message.id))
    }
  }
  return {
    take(body) {
      const ids = idsIn(body)
      if (new Set(ids).size < ids.length || ids.some((id) => open.has(id))) return false
      for (const id of ids) open.add(id)
      return true
    },
    release(body) {
      for (const id of idsIn(body)) close(id)
    },
    settled: () =>
      open.size === 0 ? Promise.resolve() : new Promise<void>((resolve) => void waiting.push(resolve)),
  }
}
