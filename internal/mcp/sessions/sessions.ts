// The eras up to 2025-11-25: `initialize` opens a session, and everything after names it. A session belongs to the
// caller that opened it; for other callers it does not exist. The number of sessions is limited (`limits`). A session ends by
// DELETE, with its token, when it is idle, or, above the limit, when it is the least recently used one; the client then opens
// a new one. A session outlives the process: its row is written before the client gets its id, and the next process loads all
// rows before it listens.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  isInitializeRequest,
  type RequestId,
  type WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'
import type { Caller } from '../../auth/caller.ts'
import type { Lifetimes } from '../../auth/lifetimes.ts'
import { Fault } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { McpSessionRows } from '../../store/rows/mcp-sessions.ts'
import { rpcError } from '../error.ts'
import type { Audience, LogMessage } from '../notify.ts'
import { type Asked, type NewServer, toAuthInfo } from '../server.ts'
import type { WatchedStreams } from '../streams.ts'
import { requestIds } from './ids.ts'
import { answerLost, isUnopened, lostAnswers, opened, openingEvent, withOpening } from './opening.ts'
import {
  isLevel,
  type Live,
  makeLive,
  newSession,
  type Session,
  tellMessage,
  tellResourceUpdated,
  tellToolsChanged,
  wake,
} from './session.ts'

export type SessionLimits = { sessions: number; sessions_per_caller: number; idle_minutes: number }
const defaults: SessionLimits = { sessions: 2000, sessions_per_caller: 500, idle_minutes: 30 }
const sweepMs = 30_000
const touchMs = 60 * 60_000
/** For a call that runs longer, the client gets an event id with which it can reconnect. */
const lateMs = 50
/** How long the calls of a session whose token ended may take to send their errors. */
const lastResponseMs = 1_000
/** How long a session that was in use when its server ended can be resumed. */
const keptDays = 7
/** Of the parameters of `initialize`; a session with larger ones does not outlive the process. */
const maxParamsCharacters = 16 * 1024

type Parts = {
  newServer: NewServer
  streams: WatchedStreams
  lifetimes: Lifetimes
  rows: McpSessionRows
  log: Log
  limits: Partial<SessionLimits>
}

const notFound = () => rpcError(404, -32001, 'Session not found')
const same = (one: Caller, other: Caller) => one.kind === other.kind && one.id === other.id

export function createSessions({ newServer, streams, lifetimes, rows, log, limits: given }: Parts) {
  const limits = { ...defaults, ...given }
  // In the order of last use: `touch` moves a session to the end.
  const sessions = new Map<string, Session>()
  let touched_at = Date.now()

  const parts = {
    newServer,
    subscribed: ({ id, subscriptions }: Session) => rows.update(id, { subscriptions }),
    closed(session: Session) {
      session.unwatch()
      sessions.delete(session.id)
    },
  }

  function touch(session: Session, caller: Caller) {
    session.used_at = Date.now()
    // The same caller may return with a credential that expires later.
    if (session.caller.expires_at !== caller.expires_at) watch(session, caller)
    session.caller = caller
    sessions.delete(session.id)
    sessions.set(session.id, session)
  }

  function watch(session: Session, caller: Caller) {
    session.unwatch()
    session.unwatch = lifetimes.watch(caller, () => {
      sessions.delete(session.id)
      // Its calls end at the same time: their responses are sent before their streams are closed.
      Promise.race([session.live?.ids.settled(), sleep(lastResponseMs, undefined, { ref: false })])
        .then(() => end(session))
        .catch((error: unknown) => log.warn('failed to end a session whose token ended', { error }))
    })
  }

  async function end(session: Session) {
    session.unwatch()
    sessions.delete(session.id)
    await Promise.all([session.live?.server.close(), rows.remove([session.id])])
  }

  async function makeRoom(caller: Caller) {
    const own = [...sessions.values()].filter((session) => same(session.caller, caller))
    if (own.length < limits.sessions_per_caller && sessions.size < limits.sessions) return
    const among = own.length < limits.sessions_per_caller ? sessions.values() : own
    for (const session of among) if (session.busy === 0) return end(session)
    throw new Fault('exhausted', 'too many open MCP sessions, and all of them are in use', {
      hint: 'end a session with DELETE /mcp, or wait',
      retry_after_seconds: 30,
    })
  }

  async function open(request: Request, asked: Asked, body: { params: Record<string, unknown> }) {
    await makeRoom(asked.caller)
    const { caller } = asked
    const { params } = body
    const session = newSession({ id: randomUUID(), caller, params, subscriptions: [], log_level: null })
    // Counts from now on, so that concurrent opens respect the limit.
    sessions.set(session.id, session)
    session.busy++
    let live: Live | undefined
    try {
      live = await makeLive(session, parts)
      const response = await live.transport.handleRequest(request, {
        parsedBody: body,
        authInfo: toAuthInfo(asked),
      })
      if (response.ok && JSON.stringify(params).length <= maxParamsCharacters)
        await rows.insert({ id: session.id, caller, params })
      if (response.ok) session.live = live
      return response
    } finally {
      session.busy--
      if (session.live) watch(session, caller)
      else {
        sessions.delete(session.id)
        await live?.server.close()
      }
    }
  }

  /** Undefined if the session has ended meanwhile. */
  async function awake(session: Session, url: string, asked: Asked): Promise<Live | undefined> {
    if (session.live) return session.live
    session.waking ??= wake(session, url, asked, parts).finally(() => {
      session.waking = undefined
    })
    // In use: it must not be evicted for another session.
    session.busy++
    const live = await session.waking.finally(() => session.busy--)
    if (sessions.get(session.id) === session) session.live = live
    else await live.server.close()
    return session.live
  }

  async function listen(session: Session, live: Live, request: Request, asked: Asked): Promise<Response> {
    const last = request.headers.get('last-event-id')
    const { replay } = session
    const missed = last === null ? undefined : replay.missedBy(last)
    if (missed?.of_request && missed.lost.length > 0)
      return answerLost(session.id, missed.lost, missed.over_id)
    // Clients that reconnect to a completed stream take this status as its end.
    if (missed?.over) return rpcError(405, -32000, 'this stream has ended')
    let say: Session['say']
    const answer = async () => {
      const response = await live.transport.handleRequest(request)
      if (!response.ok) return response
      session.busy++
      if (missed?.of_request) return response
      const events =
        lostAnswers(missed?.lost ?? []) + openingEvent(replay.openingId(last), isUnopened(request))
      return withOpening(response, events, (way) => {
        say = way
        session.say = way
      })
    }
    return await streams.watch(asked.caller, request.signal, answer, () => {
      if (session.say === say) session.say = undefined
      session.busy--
      session.used_at = Date.now()
    })
  }

  /**
   * Clients of the revisions before 2025-11-25 reconnect to their GET stream only, never to that of a request. So the ids of
   * the GET stream carry the long-running requests, and if the server is killed, they are answered there.
   */
  function announceLate(session: Session, requests: RequestId[]): void {
    const { replay } = session
    const mark = () => session.say?.(openingEvent(replay.openingId(null), true))
    replay.onAnswered = mark
    setTimeout(() => replay.announce(requests) && mark(), lateMs).unref()
  }

  async function post(session: Session, live: Live, request: Request, asked: Asked, body: unknown) {
    if (!live.ids.take(body))
      return rpcError(400, -32600, 'a request with this id is already running in this session')
    const requests = requestIds(body)
    const handle = (by: Request) =>
      session.replay.during(requests, () =>
        live.transport.handleRequest(by, { parsedBody: body, authInfo: toAuthInfo(asked) }),
      )
    let accepted = false
    try {
      await rememberLevel(session, body)
      const older = requests.length > 0 && isUnopened(request)
      const response = older ? await opened(request, lateMs, handle) : await handle(request)
      accepted = response.ok
      if (older && accepted) announceLate(session, requests)
      return response
    } finally {
      if (!accepted) live.ids.release(body)
      deliver(answerCancelled(live.transport, body))
    }
  }

  /** The log level of the client is part of its session. */
  async function rememberLevel(session: Session, body: unknown): Promise<void> {
    for (const message of Array.isArray(body) ? body : [body]) {
      const level: unknown = message?.method === 'logging/setLevel' && message.params?.level
      if (!isLevel(level)) continue
      session.log_level = level
      await rows.update(session.id, { log_level: level })
    }
  }

  const sweep = setInterval(() => {
    const idle_since = Date.now() - limits.idle_minutes * 60_000
    for (const session of sessions.values()) {
      session.replay.expire()
      if (session.busy > 0 || session.used_at > idle_since) continue
      end(session).catch((error: unknown) => log.warn('failed to end an idle session', { error }))
    }
    if (Date.now() - touched_at < touchMs) return
    touched_at = Date.now()
    rows
      .touch([...sessions.keys()])
      .catch((error: unknown) => log.warn('failed to record which MCP sessions are in use', { error }))
  }, sweepMs)
  sweep.unref()

  return {
    /** Loads the sessions of an earlier process. */
    async load() {
      for (const row of await rows.load(limits.sessions, keptDays)) {
        const session = newSession({ ...row, caller: row.caller as Caller })
        sessions.set(session.id, session)
        watch(session, session.caller)
      }
    },
    async fetch(request: Request, asked: Asked, body: unknown): Promise<Response> {
      const id = request.headers.get('mcp-session-id')
      if (id === null) {
        if (isInitializeRequest(body)) return open(request, asked, body)
        return rpcError(400, -32000, 'missing Mcp-Session-Id: open a session with initialize first')
      }
      const session = sessions.get(id)
      if (!session || !same(session.caller, asked.caller)) return notFound()
      touch(session, asked.caller)
      const live = await awake(session, request.url, asked)
      if (!live) return notFound()
      if (request.method === 'GET') return listen(session, live, request, asked)
      if (request.method === 'POST') return post(session, live, request, asked, body)
      const response = await live.transport.handleRequest(request)
      if (request.method === 'DELETE' && response.ok) await rows.remove([id])
      return response
    },
    toolsChanged() {
      for (const session of sessions.values()) deliver(tellToolsChanged(session))
    },
    resourceUpdated(uri: string, to: Audience) {
      for (const session of sessions.values())
        if (to(session.caller)) deliver(tellResourceUpdated(session, uri))
    },
    message(message: LogMessage, to: Audience) {
      for (const session of sessions.values()) if (to(session.caller)) deliver(tellMessage(session, message))
    },
    /** Keeps the rows: the next process loads them. */
    async close() {
      clearInterval(sweep)
      for (const session of sessions.values()) session.unwatch()
      await Promise.all([...sessions.values()].map(({ live }) => live?.server.close()))
      sessions.clear()
    },
  }

  function deliver(sent: Promise<void>) {
    sent.catch((error: unknown) => log.debug('failed to deliver a message', { error }))
  }
}

/**
 * The SDK does not answer a cancelled call, and keeps its stream open until the session ends. An answer frees both sides; the
 * protocol has clients ignore it.
 */
async function answerCancelled(transport: WebStandardStreamableHTTPServerTransport, body: unknown) {
  for (const message of Array.isArray(body) ? body : [body]) {
    if (message?.method !== 'notifications/cancelled') continue
    const id: unknown = message.params?.requestId
    if (typeof id !== 'string' && typeof id !== 'number') continue
    await transport.send({ jsonrpc: '2.0', id, error: { code: -32000, message: 'cancelled' } })
  }
}
