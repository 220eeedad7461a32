// The ids of the requests that are under way in one session of the older eras. The SDK finds the stream of an answer by its
// id alone: of two requests with the same one, the first would never be answered, or get what the other asked for.
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
  /** False if one of them is under way already; then none is taken. */
  take(body: unknown): boolean
  /** What was asked is not going to be answered. */
  release(body: unknown): void
  /** Resolves when nothing is under way. */
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
