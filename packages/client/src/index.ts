// The public interface of the package: a client of one server with one token. It keeps no connection: each call is a request
// of its own, and each sequence of events a stream.
import { type CallOptions, type Connection, callTool, type Json } from './call.ts'
import { createAnswering } from './caller-tools.ts'
import { OublietteError } from './error.ts'
import { type EventsOptions, followSession } from './events.ts'
import { type Retry, type RetryOptions, withRetry } from './retry.ts'
import { createSession, type Session, type SessionOptions } from './session.ts'
import type { SessionEvent, SessionInfo } from './types.ts'

export type { CallOptions, Json, Progress } from './call.ts'
export { type CallerTool, type CallerTools, type ToolCall, tool } from './caller-tools.ts'
export { type ErrorKind, OublietteError } from './error.ts'
export type { EventsOptions } from './events.ts'
export type { Retry } from './retry.ts'
export type { Answer, AskOptions, AttendOptions, PromptOptions, Session, SessionOptions } from './session.ts'
export type {
  Attachment,
  FinalStatus,
  OpenRequest,
  SentPrompt,
  SessionEvent,
  SessionInfo,
  SessionStatus,
  SpawnFields,
  Usage,
} from './types.ts'

export type ClientOptions = {
  /** The address of the server, for example http://127.0.0.1:8080 */
  url: string
  token: string
  /** The name of the application, for the server's log. */
  name?: string
  /**
   * How long calls that are safe to repeat, and event streams, are retried after the server became unreachable. Default:
   * 600. If no server responds at the first contact, that is an error at once.
   */
  reconnect_seconds?: number
  /** Called before each retry. */
  onRetry?: (retry: Retry) => void
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch
}

export interface Client {
  /**
   * Calls one tool of the server and returns its result. Rejects with an `OublietteError`, or with the reason of the signal.
   * Set `retry` only if the call is safe to repeat: it reads, is idempotent, or has an `idempotency_key`.
   */
  call<Result extends object = Json>(
    tool: string,
    args?: object,
    options?: CallOptions & { retry?: boolean },
  ): Promise<Result>
  /** All events of a session: the history, then new ones, until the session has ended. */
  events(session_id: string, options?: EventsOptions): AsyncGenerator<SessionEvent, void, undefined>
  /** A session to be spawned, or one that exists. */
  session(options: SessionOptions): Session
}

/** The address that paths are relative to. The path of the MCP endpoint is accepted too. */
function baseOf(url: string): string {
  const wrong = (why: string) =>
    new OublietteError({
      kind: 'invalid',
      message: `url "${url}" ${why}`,
      hint: 'give the address of the server, for example http://127.0.0.1:8080',
    })
  if (!URL.canParse(url)) throw wrong('is not a URL')
  const base = new URL(url)
  if (base.protocol !== 'http:' && base.protocol !== 'https:') throw wrong('is not an http or https URL')
  base.pathname = base.pathname.replace(/\/(mcp\/?)?$/, '/').replace(/([^/])$/, '$1/')
  base.search = ''
  base.hash = ''
  return base.href
}

export function createClient(options: ClientOptions): Client {
  if (!options.token)
    throw new OublietteError({
      kind: 'unauthenticated',
      message: 'missing token',
      hint: 'create one with "./oubliette token create", or use the admin token of the server',
    })
  let reached = false
  const connection: Connection = {
    url: baseOf(options.url),
    token: options.token,
    name: options.name ?? '@oubliette/client',
    // Looked up with each call, and never called as a method: browsers refuse that.
    fetch: (...args) => (options.fetch ?? globalThis.fetch)(...args),
    onReached() {
      reached = true
    },
  }
  const retry: RetryOptions = {
    reached: () => reached,
    reconnect_seconds: options.reconnect_seconds ?? 600,
    onRetry: (retry) => options.onRetry?.(retry),
  }

  const callWithRetry = (tool: string, args: Json, more: CallOptions = {}) =>
    withRetry(retry, more.signal, () => callTool(connection, tool, args, more))
  const get = async (session_id: string, signal?: AbortSignal) =>
    (await callWithRetry('session', { action: 'get', session_id }, { signal })) as SessionInfo
  const follow = (session_id: string, options: EventsOptions, known?: SessionInfo) =>
    followSession({ connection, retry, get }, session_id, options, known)
  const answering = createAnswering({
    call: (tool, args) => callTool(connection, tool, args),
    callWithRetry,
  })

  return {
    async call<Result extends object = Json>(
      tool: string,
      args: object = {},
      { retry = false, ...more }: CallOptions & { retry?: boolean } = {},
    ): Promise<Result> {
      const run = retry
        ? callWithRetry(tool, args as Json, more)
        : callTool(connection, tool, args as Json, more)
      return (await run) as Result
    },
    events: (session_id, options = {}) => follow(session_id, options),
    session: (options) =>
      createSession(
        { call: (tool, args, signal) => callWithRetry(tool, args, { signal }), follow, answering },
        options,
      ),
  }
}
