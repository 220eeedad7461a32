// Forwards MCP messages between a client on stdio and the server, in both directions and unchanged. Messages of the stateless
// era are requests of their own; those of the older eras share the session that `initialize` opened. A client on stdio does
// not see connections: a request that was not sent yet waits for a server that restarts, a response stream is resumed by its
// last event id, and a session that the server no longer knows is opened again.
import type { IncomingMessage } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import { createParser } from 'eventsource-parser'
import type { Endpoint } from '../client/call.ts'
import { isEventStream, send, textOf } from '../client/http.ts'
import {
  errorResponse,
  type Id,
  isRequest,
  isResponseTo,
  type Message,
  statelessHeaders,
  statelessVersion,
  subscriptionOf,
} from './wire.ts'

export type BridgeOptions = {
  where: Endpoint
  /** Writes one message to the client. */
  write(message: object): void
  warn(text: string): void
  /** How long a request waits for a server that cannot be reached. */
  reconnect_ms: number
}

type Session = { id: string; version: string; initialize: Message }
type Open = { stop: AbortController; version: string | undefined }

const retryMs = [100, 250, 500, 1000, 2000] as const
const retryAfter = (attempt: number) => retryMs[Math.min(attempt, retryMs.length - 1)]!
const acknowledged = 'notifications/subscriptions/acknowledged'

/** The request has not reached a server: it can be sent again. */
const isUnsent = (error: unknown) =>
  ['ECONNREFUSED', 'ENOENT', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOTFOUND'].includes(
    (error as NodeJS.ErrnoException).code ?? '',
  )

export function createBridge({ where, write, warn, reconnect_ms }: BridgeOptions) {
  const closing = new AbortController()
  const open = new Map<Id, Open>()
  let session: Session | undefined
  let reopening: Promise<void> | undefined
  let listening: AbortController | undefined
  let unreachable = false

  const headers = (more: object) => ({
    authorization: `Bearer ${where.token}`,
    accept: 'application/json, text/event-stream',
    ...more,
  })
  const sessionHeaders = () =>
    session ? { 'mcp-session-id': session.id, 'mcp-protocol-version': session.version } : {}

  const forward = (message: object) => write({ jsonrpc: '2.0', ...message })

  /** Repeats `attempt` while the server cannot be reached. */
  async function reach(
    attempt: () => Promise<IncomingMessage>,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const deadline = performance.now() + reconnect_ms
    for (let count = 0; ; count++) {
      try {
        const response = await attempt()
        if (unreachable) warn(`reconnected to ${where.url.origin}`)
        unreachable = false
        // A server that is starting or stopping.
        if (response.statusCode !== 503 || performance.now() > deadline) return response
        response.resume()
      } catch (error) {
        if (signal.aborted || !isUnsent(error) || performance.now() > deadline) throw error
        if (!unreachable) warn(`cannot reach the server at ${where.url.origin}, retrying`)
        unreachable = true
      }
      await pause(retryAfter(count), undefined, { signal })
    }
  }

  const post = (message: Message, signal: AbortSignal) => {
    const version = statelessVersion(message)
    const body = JSON.stringify({ jsonrpc: '2.0', ...message })
    return reach(
      () =>
        send(where.url, {
          method: 'POST',
          headers: headers({
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
            ...(version ? statelessHeaders(message, version) : sessionHeaders()),
          }),
          body,
          signal,
        }),
      signal,
    )
  }

  const get = (last_event_id: string | undefined, signal: AbortSignal) =>
    reach(
      () =>
        send(where.url, {
          headers: headers({
            ...sessionHeaders(),
            ...(last_event_id === undefined ? {} : { 'last-event-id': last_event_id }),
          }),
          signal,
        }),
      signal,
    )

  /** The error of a response that is not a success, as the server states it. */
  async function refusal(response: IncomingMessage): Promise<{ code: number; message: string }> {
    const text = await textOf(response)
    try {
      const { error } = JSON.parse(text) as { error?: { code?: unknown; message?: unknown } }
      if (typeof error?.message === 'string')
        return {
          ...error,
          code: typeof error.code === 'number' ? error.code : -32000,
          message: error.message,
        }
    } catch {
      // Another program answers at this address.
    }
    return {
      code: -32000,
      message: `the server at ${where.url.origin} returned HTTP status ${response.statusCode}`,
    }
  }

  /** Passes on the messages of one stream. Returns its last event id, and whether `id` was answered. */
  async function pump(response: IncomingMessage, id: Id | undefined, take: (message: Message) => void) {
    let last: string | undefined
    let answered = false
    const parser = createParser({
      onEvent(event) {
        if (event.id !== undefined) last = event.id
        if (event.data === '') return
        const message = JSON.parse(event.data) as Message
        if (id !== undefined && isResponseTo(message, id)) answered = true
        take(message)
      },
    })
    try {
      for await (const chunk of response.setEncoding('utf8')) parser.feed(chunk)
    } catch {
      // The connection was lost: the caller decides whether the stream can be resumed.
    }
    return { last, answered }
  }

  /** Of the older eras: the server replays what was sent after this event, or answers with an error. */
  async function resume(id: Id, from: string | undefined, signal: AbortSignal): Promise<void> {
    let last = from
    while (last !== undefined && !signal.aborted) {
      const response = await get(last, signal)
      if (!isEventStream(response)) {
        response.resume()
        break
      }
      const more = await pump(response, id, forward)
      if (more.answered) return
      if (more.last === undefined) await pause(retryMs[0], undefined, { signal })
      last = more.last ?? last
    }
    throw new Error('the connection was lost')
  }

  async function request(message: Message & { id: Id; method: string }, again = false): Promise<void> {
    const { id } = message
    const version = statelessVersion(message)
    const stop = new AbortController()
    const signal = AbortSignal.any([stop.signal, closing.signal])
    open.set(id, { stop, version })
    try {
      const response = await post(message, signal)
      if (response.statusCode === 404 && version === undefined && session && !again) {
        response.resume()
        await reopen(signal)
        return await request(message, true)
      }
      if (response.statusCode !== 200) return forward({ id, error: await refusal(response) })
      const take = message.method === 'initialize' ? opening(message, response) : forward
      if (!isEventStream(response)) return take(JSON.parse(await textOf(response)) as Message)
      const { last, answered } = await pump(response, id, take)
      if (answered || signal.aborted) return
      if (version === undefined) return await resume(id, last, signal)
      if (message.method === 'subscriptions/listen') return await subscribeAgain(message, signal)
      throw new Error('the connection was lost')
    } catch (error) {
      // A cancelled request is not answered.
      if (signal.aborted) return
      const why = error instanceof Error ? error.message : String(error)
      forward(
        errorResponse(
          id,
          isUnsent(error) || message.method === 'initialize'
            ? `cannot reach the server at ${where.url.origin}: ${why}`
            : `the server ended before the response (${why}); the call may have taken effect`,
        ),
      )
    } finally {
      if (open.get(id)?.stop === stop) open.delete(id)
    }
  }

  /** The client still has its subscription: it is made again, and what may have changed meanwhile is announced. */
  async function subscribeAgain(message: Message & { id: Id }, signal: AbortSignal): Promise<void> {
    for (;;) {
      const response = await post(message, signal)
      if (response.statusCode !== 200 || !isEventStream(response))
        return forward({ id: message.id, error: await refusal(response) })
      const { answered } = await pump(response, message.id, (news) => {
        if (news.method !== acknowledged) return forward(news)
        forward({
          method: 'notifications/tools/list_changed',
          params: { _meta: { 'io.modelcontextprotocol/subscriptionId': subscriptionOf(news) } },
        })
      })
      if (answered || signal.aborted) return
      await pause(retryMs[0], undefined, { signal })
    }
  }

  /** Remembers the session that the response to `initialize` opens. */
  function opening(initialize: Message, response: IncomingMessage, pass = forward) {
    const id = response.headers['mcp-session-id']
    return (message: Message): void => {
      const version = message.result?.protocolVersion
      if (typeof id === 'string' && typeof version === 'string') session = { id, version, initialize }
      pass(message)
    }
  }

  /** The server has forgotten the session: opens another one for the same client. */
  function reopen(signal: AbortSignal): Promise<void> {
    reopening ??= (async () => {
      const { initialize } = session!
      session = undefined
      const response = await post(initialize, signal)
      if (response.statusCode !== 200) throw new Error((await refusal(response)).message)
      const take = opening(initialize, response, () => undefined)
      if (isEventStream(response)) await pump(response, undefined, take)
      else take(JSON.parse(await textOf(response)) as Message)
      const ready = await post({ method: 'notifications/initialized' }, signal)
      ready.resume()
      listen()
    })().finally(() => {
      reopening = undefined
    })
    return reopening
  }

  /** The stream of messages that belong to no request; older eras only. */
  function listen(): void {
    listening?.abort()
    const mine = new AbortController()
    listening = mine
    const signal = AbortSignal.any([mine.signal, closing.signal])
    const follow = async () => {
      let last: string | undefined
      while (!signal.aborted) {
        const response = await get(last, signal)
        if (response.statusCode === 404) {
          response.resume()
          return await reopen(closing.signal)
        }
        if (response.statusCode !== 200) return response.resume()
        const more = await pump(response, undefined, forward)
        last = more.last ?? last
        await pause(retryMs[0], undefined, { signal })
      }
    }
    follow().catch((error: unknown) => {
      if (!signal.aborted) warn(`the stream of notifications ended: ${(error as Error).message}`)
    })
  }

  /** A notification or a response of the client. */
  async function notify(message: Message): Promise<void> {
    const cancelled = message.method === 'notifications/cancelled' ? message.params?.requestId : undefined
    const target = cancelled === undefined ? undefined : open.get(cancelled as Id)
    // Closing the response is the cancellation of the stateless era.
    if (target?.version !== undefined) return target.stop.abort()
    const response = await post(message, closing.signal)
    if (response.statusCode !== undefined && response.statusCode >= 400)
      warn(`the server refused ${message.method ?? 'a response'}: ${(await refusal(response)).message}`)
    else response.resume()
    if (message.method === 'notifications/initialized' && session) listen()
  }

  return {
    /** Settles when the next message can be sent: requests run concurrently, everything else in order. */
    async receive(message: Message): Promise<void> {
      if (isRequest(message)) {
        const running = request(message)
        if (message.method === 'initialize') await running
        return
      }
      await notify(message).catch((error: unknown) => {
        if (!closing.signal.aborted)
          warn(`failed to send ${message.method ?? 'a response'}: ${(error as Error).message}`)
      })
    },
    /** Cancels what runs, and ends the session on the server. */
    async close(): Promise<void> {
      closing.abort()
      if (!session) return
      const last = AbortSignal.timeout(1000)
      const response = await send(where.url, {
        method: 'DELETE',
        headers: headers(sessionHeaders()),
        signal: last,
      }).catch(() => undefined)
      response?.resume()
    },
  }
}
export type Bridge = ReturnType<typeof createBridge>
