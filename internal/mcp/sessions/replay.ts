// The latest messages of a session's streams, so that a client that lost its connection can continue from its Last-Event-ID.
// This is for lost connections only: durable data is in the database and has its own cursor. Bounds per session: 128
// messages, about 512 KiB (the newest is kept regardless of its size), five minutes.
//
// An event's id is `<epoch>.<index>.<stream>[.<requests>]`. The epoch is that of the process; `requests` are the ids of the
// requests that the stream has not answered yet. So a later process knows which calls an earlier one left unanswered without
// storing anything.
import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import type { EventStore, JSONRPCMessage, RequestId } from '@modelcontextprotocol/server'

const maxMessages = 128
const maxBytes = 512 * 1024
const maxAgeMs = 5 * 60_000
/** Of the requests in an id: the client sends it in a header. */
const maxRequestCharacters = 1024
/** The name that the SDK gives to the stream that a client opens with GET. */
const listening = '_GET_stream'
const epoch = randomBytes(6).toString('hex')

type Kept = { index: number; stream: string; id: string; message: JSONRPCMessage; bytes: number; at: number }
/** `over_id`: the id of the last event, after which nothing follows. */
type Missed = {
  /** The stream answers requests; otherwise it is the one that a client opens with GET. */
  of_request: boolean
  /** Requests that an earlier process left unanswered. */
  lost: RequestId[]
  /** Nothing was sent after this event, and nothing will be. */
  over: boolean
  over_id: string
}
type ParsedId = { index: number; stream: string; earlier: boolean; requests: RequestId[] }

export interface Replay extends EventStore {
  getStreamIdForEventId(id: string): Promise<string | undefined>
  /** The streams that `run` opens are for these requests. */
  during<T>(requests: RequestId[], run: () => T): T
  /** What a client missed whose last event was this one; undefined if there is no such event. */
  missedBy(id: string): Missed | undefined
  /** From now on the ids of the GET stream carry those of these requests that are not answered. False if all are. */
  announce(requests: RequestId[]): boolean
  /** Called when a request that was announced is answered. */
  onAnswered: () => void
  /** The id of the event that opens a GET stream, which goes on after `last` if that is given. */
  openingId(last: string | null): string
  /** Keeps a message for the next GET stream. */
  keep(message: JSONRPCMessage): void
  /** Drops messages that are too old to be replayed. */
  expire(now?: number): void
}

const opening = new AsyncLocalStorage<RequestId[]>()

/** Accurate enough for a bound, and far cheaper than serializing the message again. */
function roughSize(message: JSONRPCMessage): number {
  if ('method' in message) return JSON.stringify(message).length
  const content: unknown = 'result' in message ? message.result.content : undefined
  if (!Array.isArray(content)) return 1024
  return content.reduce((sum, { text }: { text?: string }) => sum + 2 * (text?.length ?? 1024), 256)
}

function encode(requests: ReadonlySet<RequestId> | undefined): string {
  if (!requests?.size) return ''
  const text = Buffer.from(JSON.stringify([...requests])).toString('base64url')
  return text.length > maxRequestCharacters ? '' : `.${text}`
}

function decode(text: string | undefined): RequestId[] {
  if (!text) return []
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64url').toString())
    return Array.isArray(value) ? value.filter((id) => ['string', 'number'].includes(typeof id)) : []
  } catch {
    // Not an id of this server: it names no request.
    return []
  }
}

export function createReplay(): Replay {
  let kept: Kept[] = []
  let bytes = 0
  let next = 1
  /** Of the streams that have not answered everything. */
  const open = new Map<string, Set<RequestId>>()

  function parse(id: string): ParsedId | undefined {
    const match = /^([0-9a-f]{12})\.(\d{1,15})\.([\w-]{1,64})(?:\.([\w-]{1,1024}))?$/.exec(id)
    if (!match) return undefined
    const index = Number(match[2])
    const earlier = match[1] !== epoch
    if (!earlier && index >= next) return undefined
    return { index: earlier ? 0 : index, stream: match[3]!, earlier, requests: decode(match[4]) }
  }
  const dropOldest = () => {
    bytes -= kept.shift()?.bytes ?? 0
  }

  /** Removes an answered request of the stream, and reports it if it was announced. */
  function answered(stream: string, request: RequestId): void {
    const requests = open.get(stream)
    requests?.delete(request)
    if (requests?.size === 0) open.delete(stream)
    if (open.get(listening)?.delete(request)) replay.onAnswered()
  }

  function store(stream: string, message: JSONRPCMessage): string {
    // The event that opens a stream carries no message; it gives the client an id with which it can reconnect.
    const opens = Object.keys(message).length === 0
    const asked = opens ? opening.getStore() : undefined
    if (asked?.length) open.set(stream, new Set(asked))
    if (!opens && !('method' in message) && message.id !== undefined) answered(stream, message.id)
    const index = next++
    const id = `${epoch}.${index}.${stream}${encode(open.get(stream))}`
    if (opens) return id
    const size = roughSize(message)
    kept.push({ index, stream, id, message, bytes: size, at: Date.now() })
    bytes += size
    while (kept.length > maxMessages || (bytes > maxBytes && kept.length > 1)) dropOldest()
    return id
  }

  const replay: Replay = {
    onAnswered: () => {},
    announce(requests) {
      const under_way = new Set([...open].flatMap(([stream, ids]) => (stream === listening ? [] : [...ids])))
      const late = requests.filter((id) => under_way.has(id))
      if (late.length > 0) open.set(listening, new Set([...(open.get(listening) ?? []), ...late]))
      return late.length > 0
    },
    storeEvent: async (stream, message) => store(stream, message),
    keep: (message) => void store(listening, message),
    during: (requests, run) => opening.run(requests, run),
    async getStreamIdForEventId(id) {
      return parse(id)?.stream
    },
    missedBy(id) {
      const last = parse(id)
      if (!last) return undefined
      const { stream, earlier } = last
      const of_request = stream !== listening
      const more =
        open.has(stream) || kept.some((event) => event.stream === stream && event.index > last.index)
      return {
        of_request,
        lost: earlier ? last.requests : [],
        over: of_request && !more,
        over_id: `${epoch}.0.${stream}`,
      }
    },
    openingId(last) {
      const index = last === null ? next - 1 : (parse(last)?.index ?? 0)
      return `${epoch}.${index}.${listening}${encode(open.get(listening))}`
    },
    async replayEventsAfter(id, { send }) {
      const last = parse(id)
      if (!last) return ''
      for (const event of [...kept])
        if (event.stream === last.stream && event.index > last.index) await send(event.id, event.message)
      return last.stream
    },
    expire(now = Date.now()) {
      while (kept[0] && now - kept[0].at > maxAgeMs) dropOldest()
      if (kept.length === 0) kept = []
    },
  }
  return replay
}
