// The ids of the requests that are under way in one session of the older eras. The SDK finds the stream of an answer by its
// id alone: of two requests with the same one, the first would never be answered, or get what the other asked for.
import type { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server'

type Message = { id?: unknown; method?: unknown } | null | undefined

const keyOf = (id: unknown) => `${typeof id} ${id}`

function idsIn(body: unknown): string[] {
  const messages = (Array.isArray(body) ? body : [body]) as Message[]
  return messages.flatMap((message) =>
    typeof message?.method === 'string' && ['string', 'number'].includes(typeof message.id)
      ? [keyOf(message.id)]
      : [],
  )
}

export interface OpenIds {
  /** False if one of them is under way already; then none is taken. */
  take(body: unknown): boolean
  /** What was asked is not going to be answered. */
  release(body: unknown): void
}

export function watchIds(transport: WebStandardStreamableHTTPServerTransport): OpenIds {
  const open = new Set<string>()
  const send = transport.send.bind(transport)
  transport.send = async (message, options) => {
    try {
      await send(message, options)
    } finally {
      if (!('method' in message) && 'id' in message) open.delete(keyOf(message.id))
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
      for (const id of idsIn(body)) open.delete(id)
    },
  }
}
