// What a session's streams have sent lately, so that a client that lost its connection can go on from its
// Last-Event-ID. This is about lost connections only: what must last is in the database and has its own cursor.
// Bounds per session: 128 messages, about 512 KiB (the newest is kept whatever its size), five minutes.
import type { EventStore, JSONRPCMessage } from '@modelcontextprotocol/server'

const max_messages = 128
const max_bytes = 512 * 1024
const max_age_ms = 5 * 60_000

type Kept = { index: number; stream: string; message: JSONRPCMessage; bytes: number; at: number }

export interface Replay extends EventStore {
  getStreamIdForEventId(id: string): Promise<string | undefined>
  /** Drops what is too old to be asked for. */
  expire(now?: number): void
}

/** Close enough for a bound, and far cheaper than writing the message a second time. */
function roughSize(message: JSONRPCMessage): number {
  if ('method' in message) return JSON.stringify(message).length
  const content: unknown = 'result' in message ? message.result.content : undefined
  if (!Array.isArray(content)) return 1024
  return content.reduce((sum, { text }: { text?: string }) => sum + 2 * (text?.length ?? 1024), 256)
}

export function createReplay(): Replay {
  let kept: Kept[] = []
  let bytes = 0
  let next = 0

  const parse = (id: string) => {
    const match = /^(\d{1,15})\.(.+)$/.exec(id)
    return match && Number(match[1]) < next ? { index: Number(match[1]), stream: match[2]! } : undefined
  }
  const dropOldest = () => {
    bytes -= kept.shift()?.bytes ?? 0
  }

  return {
    async storeEvent(stream, message) {
      const index = next++
      const size = roughSize(message)
      kept.push({ index, stream, message, bytes: size, at: Date.now() })
      bytes += size
      while (kept.length > max_messages || (bytes > max_bytes && kept.length > 1)) dropOldest()
      return `${index}.${stream}`
    },
    async getStreamIdForEventId(id) {
      return parse(id)?.stream
    },
    async replayEventsAfter(id, { send }) {
      const last = parse(id)
      if (!last) return ''
      for (const event of kept) {
        if (event.stream !== last.stream || event.index <= last.index) continue
        // The event that opens a stream carries no message; it only gives the client an id to come back with.
        if (Object.keys(event.message).length > 0) await send(`${event.index}.${event.stream}`, event.message)
      }
      return last.stream
    },
    expire(now = Date.now()) {
      while (kept[0] && now - kept[0].at > max_age_ms) dropOldest()
      if (kept.length === 0) kept = []
    },
  }
}
