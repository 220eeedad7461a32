// The eras up to 2025-11-25: `initialize` opens a session, and everything after names it. A session belongs to the
// caller that opened it; for anybody else it does not exist. Sessions are few (`limits`) and end by DELETE, with their
// token, by being idle, or, when there are too many, by being the one that was used longest ago; a client then opens a
// new one.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  isInitializeRequest,
  type Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'
import type { Caller } from '../auth/caller.ts'
import type { Lifetimes } from '../auth/lifetimes.ts'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { isSubscribed } from './resources.ts'
import { rpcError } from './serve-error.ts'
import { type OpenIds, watchIds } from './serve-ids.ts'
import type { Audience, LogMessage } from './serve-notify.ts'
import { createReplay, type Replay } from './serve-replay.ts'
import { type Asked, type NewServer, toAuthInfo } from './serve-server.ts'
import type { WatchedStreams } from './serve-streams.ts'

export type SessionLimits = { sessions: number; sessions_per_caller: number; idle_minutes: number }
const defaults: SessionLimits = { sessions: 2000, sessions_per_caller: 500, idle_minutes: 30 }
const sweep_ms = 30_000
/** How long the calls of a session whose token ended have to say so. */
const last_words_ms = 1_000

type Session = {
  id: string
  caller: Caller
  server: Server
  transport: WebStandardStreamableHTTPServerTransport
  replay: Replay
  ids: OpenIds
  used_at: number
  /** Calls that run and streams that are open: while there are any, the session is not idle. */
  busy: number
  /** Stops watching the credential of its caller. */
  unwatch: () => void
}
type Parts = {
  newServer: NewServer
  streams: WatchedStreams
  lifetimes: Lifetimes
  log: Log
  limits: Partial<SessionLimits>
}

const same = (one: Caller, other: Caller) => one.kind === other.kind && one.id === other.id

export function createSessions({ newServer, streams, lifetimes, log, limits: given }: Parts) {
  const limits = { ...defaults, ...given }
  // In the order of last use: `touch` moves a session to the end.
  const sessions = new Map<string, Session>()

  function touch(session: Session, caller: Caller) {
    session.used_at = Date.now()
    // The same caller may come back with a credential that lives longer.
    if (session.caller.expires_at !== caller.expires_at) watch(session, caller)
    session.caller = caller
    sessions.delete(session.id)
    sessions.set(session.id, session)
  }

  function watch(session: Session, caller: Caller) {
    session.unwatch()
    session.unwatch = lifetimes.watch(caller, () => {
      sessions.delete(session.id)
      // Its calls end at the same moment: their answers go out before the streams that carry them are closed.
      Promise.race([session.ids.settled(), sleep(last_words_ms, undefined, { ref: false })])
        .then(() => end(session))
        .catch((error: unknown) => log.warn('failed to end a session whose token ended', { error }))
    })
  }

  async function end(session: Session) {
    session.unwatch()
    sessions.delete(session.id)
    await session.server.close()
  }

  async function makeRoom(caller: Caller) {
    const own = [...sessions.values()].filter((session) => same(session.caller, caller))
    if (own.length < limits.sessions_per_caller && sessions.size < limits.sessions) return
    const among = own.length < limits.sessions_per_caller ? sessions.values() : own
    for (const session of among) if (session.busy === 0) return end(session)
    throw new Fault('exhausted', 'there are too many open MCP sessions, and all of them are in use', {
      hint: 'end a session with DELETE /mcp, or wait',
      retry_after_seconds: 30,
    })
  }

  async function open(request: Request, asked: Asked, body: unknown): Promise<Response> {
    await makeRoom(asked.caller)
    const replay = createReplay()
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: replay,
      retryInterval: 1000,
      onsessioninitialized: (id) => {
        session.id = id
        sessions.set(id, session)
        watch(session, asked.caller)
      },
      onsessionclosed: (id) => {
        session.unwatch()
        sessions.delete(id)
      },
    })
    const server = newServer((change) => {
      session.busy += change
    })
    const session: Session = {
      id: '',
      caller: asked.caller,
      server,
      transport,
      replay,
      ids: watchIds(transport),
      used_at: Date.now(),
      busy: 0,
      unwatch: () => {},
    }
    await server.connect(transport)
    const response = await transport.handleRequest(request, {
      parsedBody: body,
      authInfo: toAuthInfo(asked),
    })
    if (session.id === '') await server.close()
    return response
  }

  async function listen(session: Session, request: Request, asked: Asked): Promise<Response> {
    const answer = async () => {
      const response = await session.transport.handleRequest(request)
      if (response.ok) session.busy++
      return response
    }
    return await streams.watch(asked.caller, request.signal, answer, () => {
      session.busy--
      session.used_at = Date.now()
    })
  }

  const sweep = setInterval(() => {
    const idle_since = Date.now() - limits.idle_minutes * 60_000
    for (const session of sessions.values()) {
      session.replay.expire()
      if (session.busy > 0 || session.used_at > idle_since) continue
      end(session).catch((error: unknown) => log.warn('an idle session did not end', { error }))
    }
  }, sweep_ms)
  sweep.unref()

  return {
    async fetch(request: Request, asked: Asked, body: unknown): Promise<Response> {
      const id = request.headers.get('mcp-session-id')
      if (id === null) {
        if (isInitializeRequest(body)) return open(request, asked, body)
        return rpcError(400, -32000, 'Mcp-Session-Id is missing: open a session with initialize first')
      }
      const session = sessions.get(id)
      if (!session || !same(session.caller, asked.caller)) return rpcError(404, -32001, 'Session not found')
      touch(session, asked.caller)
      if (request.method === 'GET') return listen(session, request, asked)
      if (!session.ids.take(body))
        return rpcError(400, -32600, 'a request with this id is under way in this session')
      let accepted = false
      try {
        const response = await session.transport.handleRequest(request, {
          parsedBody: body,
          authInfo: toAuthInfo(asked),
        })
        accepted = response.ok
        return response
      } finally {
        if (!accepted) session.ids.release(body)
        deliver(answerCancelled(session.transport, body))
      }
    },
    notifyAll(notification: { method: 'notifications/tools/list_changed' }) {
      for (const { server } of sessions.values()) deliver(server.notification(notification))
    },
    resourceUpdated(uri: string, to: Audience) {
      for (const { server, caller } of sessions.values())
        if (isSubscribed(server, uri) && to(caller)) deliver(server.sendResourceUpdated({ uri }))
    },
    message(message: LogMessage, to: Audience) {
      for (const { server, id, caller } of sessions.values())
        if (to(caller)) deliver(server.sendLoggingMessage(message, id))
    },
    async close() {
      clearInterval(sweep)
      await Promise.all([...sessions.values()].map(end))
    },
  }

  function deliver(sent: Promise<void>) {
    sent.catch((error: unknown) => log.debug('a message was not delivered', { error }))
  }
}

/**
 * The SDK leaves a cancelled call without an answer, and the stream that waits for it open until the session ends. An
 * answer that nobody waits for frees both sides; the protocol has clients ignore it.
 */
async function answerCancelled(transport: WebStandardStreamableHTTPServerTransport, body: unknown) {
  for (const message of Array.isArray(body) ? body : [body]) {
    if (message?.method !== 'notifications/cancelled') continue
    const id: unknown = message.params?.requestId
    if (typeof id !== 'string' && typeof id !== 'number') continue
    await transport.send({ jsonrpc: '2.0', id, error: { code: -32000, message: 'cancelled' } })
  }
}
