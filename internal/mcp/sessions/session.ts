// One session of the eras up to 2025-11-25. A session that an earlier process opened is dormant: it has the data of its row,
// and keeps messages for its client. The first request wakes it: a server object of the SDK is created, and the initialize
// request of the client is replayed to it.
import {
  type JSONRPCNotification,
  type LoggingLevel,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'
import type { Caller } from '../../auth/caller.ts'
import { Fault } from '../../fault.ts'
import type { LogMessage } from '../notify.ts'
import { isSubscribed, subscribe } from '../resources.ts'
import { type Asked, type NewServer, toAuthInfo } from '../server.ts'
import { type OpenIds, watchIds } from './ids.ts'
import { retryMs } from './opening.ts'
import { createReplay, type Replay } from './replay.ts'

export type Live = { server: Server; transport: WebStandardStreamableHTTPServerTransport; ids: OpenIds }

export type Session = {
  id: string
  caller: Caller
  /** Of its `initialize`. */
  params: Record<string, unknown>
  /** As in the database; while the session is awake, the server object has the current ones. */
  subscriptions: string[]
  log_level: string | null
  replay: Replay
  used_at: number
  /** Number of running calls and open streams; the session is idle at 0. */
  busy: number
  /** Stops watching the credential of its caller. */
  unwatch: () => void
  /** Writes events on its GET stream, while there is one. */
  say: ((events: string) => void) | undefined
  live: Live | undefined
  waking: Promise<Live> | undefined
}

export const newSession = (
  known: Pick<Session, 'id' | 'caller' | 'params' | 'subscriptions' | 'log_level'>,
): Session => ({
  ...known,
  replay: createReplay(),
  used_at: Date.now(),
  busy: 0,
  unwatch: () => {},
  say: undefined,
  live: undefined,
  waking: undefined,
})

type Parts = {
  newServer: NewServer
  /** The subscriptions of the client changed. */
  subscribed(session: Session): Promise<void>
  /** The client deleted it. */
  closed(session: Session): void
}

/** A new server object for the session, not initialized yet. */
export async function makeLive(session: Session, { newServer, subscribed, closed }: Parts): Promise<Live> {
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: () => session.id,
    eventStore: session.replay,
    retryInterval: retryMs,
    onsessionclosed: () => closed(session),
  })
  const server = newServer({
    running(change) {
      session.busy += change
    },
    async subscribed(uris) {
      session.subscriptions = uris
      await subscribed(session)
    },
  })
  const live = { server, transport, ids: watchIds(transport) }
  await server.connect(transport)
  return live
}

/** Replays to a new server object what the client sent to an earlier process. */
export async function wake(session: Session, url: string, asked: Asked, parts: Parts): Promise<Live> {
  const live = await makeLive(session, parts)
  const say = async (body: Record<string, unknown>, more: Record<string, string> = {}) => {
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...more,
    }
    const answer = await live.transport.handleRequest(new Request(url, { method: 'POST', headers }), {
      parsedBody: { jsonrpc: '2.0', ...body },
      authInfo: toAuthInfo(asked),
    })
    await answer.text()
    if (answer.ok) return
    throw new Fault('internal', `failed to restore the MCP session: ${body.method} returned ${answer.status}`)
  }
  try {
    await say({ id: 'restore', method: 'initialize', params: session.params })
    const named = { 'mcp-session-id': session.id }
    await say({ method: 'notifications/initialized' }, named)
    if (session.log_level !== null)
      await say({ id: 'restore', method: 'logging/setLevel', params: { level: session.log_level } }, named)
    for (const uri of session.subscriptions) subscribe(live.server, uri)
  } catch (error) {
    await live.server.close()
    throw error
  }
  return live
}

const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']
export const isLevel = (level: unknown): level is LoggingLevel => levels.includes(level as string)

const toListener = (method: string, params?: Record<string, unknown>): JSONRPCNotification => ({
  jsonrpc: '2.0',
  method,
  ...(params ? { params } : {}),
})

export async function tellToolsChanged({ live, replay }: Session): Promise<void> {
  const method = 'notifications/tools/list_changed'
  if (live) await live.server.notification({ method })
  else replay.keep(toListener(method))
}

export async function tellResourceUpdated(session: Session, uri: string): Promise<void> {
  const { live, replay, subscriptions } = session
  if (live && isSubscribed(live.server, uri)) await live.server.sendResourceUpdated({ uri })
  if (!live && subscriptions.includes(uri))
    replay.keep(toListener('notifications/resources/updated', { uri }))
}

export async function tellMessage(session: Session, message: LogMessage): Promise<void> {
  const { live, replay, log_level } = session
  if (live) return await live.server.sendLoggingMessage(message, session.id)
  if (log_level !== null && levels.indexOf(message.level) < levels.indexOf(log_level)) return
  replay.keep(toListener('notifications/message', message))
}
