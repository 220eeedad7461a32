// What the SDK's HTTP transports use as `fetch`: adds the configured headers to requests to the upstream and to nothing else (its
// authorization server does not get them), and limits what comes back.

import { jsonProblem } from '../../event-loop/json-bounds.ts'
import type { Secret } from '../../log.ts'
import type { GuardedFetch } from '../upstream.ts'
import { filterEvents } from './event-stream.ts'
import { createMessageBudget } from './message-budget.ts'
import { idOf, messageLimit, type RequestId, refusal, tooLarge } from './messages.ts'

/** Of an error page, of metadata and tokens. */
const maxOtherBytes = 256 * 1024
const otherTimeoutMs = 10_000
/** Streams that an upstream ends at once are opened again by the SDK. */
const streamsPerMinute = 12
const maxCancelChars = 16 * 1024
const cancelGraceMs = 2_000

/** With which authorization a request was made that was refused: it may have been renewed since. */
export const authorizationOf = new WeakMap<Response, string>()

export type HttpFetchOptions = {
  kind: 'http' | 'sse'
  url: string
  headers: Record<string, Secret>
  fetch: GuardedFetch
  max_result_bytes: number
  /** The one stream of an SSE upstream ended: the connection is lost. */
  onStreamEnd(): void
}

/** Reads up to the limit and counts the rest: the size belongs into the error. */
async function readText(response: Response, max_bytes: number): Promise<{ text: string; bytes: number }> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  // Counting has a limit as well.
  const most = max_bytes * 16
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    if (bytes <= max_bytes) chunks.push(chunk)
    if (bytes > most) break
  }
  return { text: Buffer.concat(chunks).toString('utf8'), bytes }
}

const withoutBody = new Set([101, 204, 205, 304])

function copy(response: Response, body: string | ReadableStream<Uint8Array> | null): Response {
  const headers = new Headers(response.headers)
  // The body is decoded, and may be another one.
  for (const name of ['content-length', 'content-encoding', 'transfer-encoding']) headers.delete(name)
  const { status, statusText } = response
  return new Response(withoutBody.has(status) ? null : body, { status, statusText, headers })
}

export function createHttpFetch(
  options: HttpFetchOptions,
): (url: string | URL, init?: RequestInit) => Promise<Response> {
  const own = new URL(options.url)
  /** Of SSE upstreams: where messages are sent, as the upstream says. */
  let endpoint: string | undefined
  let streams: number[] = []
  /** Of SSE upstreams: their one stream was opened. */
  let opened = false
  const budget = createMessageBudget()
  const open = new Map<RequestId, AbortController>()

  const place = (url: URL) => `${url.origin}${url.pathname}`
  const isMessage = (url: URL) => place(url) === place(own) || url.href === endpoint

  function mayOpenStream(): boolean {
    if (options.kind === 'sse') return !opened
    const now = performance.now()
    streams = streams.filter((at) => now - at < 60_000)
    streams.push(now)
    return streams.length <= streamsPerMinute
  }

  /** The SDK tells an upstream of the older era that a request is cancelled, but goes on to wait for its answer. */
  function endCancelled(body: string): void {
    if (body.length > maxCancelChars || !body.includes('"notifications/cancelled"')) return
    const { params } = JSON.parse(body) as { params?: { requestId?: RequestId } }
    const cancelled = params?.requestId === undefined ? undefined : open.get(params.requestId)
    if (cancelled) setTimeout(() => cancelled.abort(), cancelGraceMs).unref()
  }

  async function other(url: URL, init: RequestInit): Promise<Response> {
    const limit = AbortSignal.timeout(otherTimeoutMs)
    const signal = init.signal ? AbortSignal.any([init.signal, limit]) : limit
    const response = await options.fetch(url, { ...init, signal })
    const { text, bytes } = await readText(response, maxOtherBytes)
    if (bytes > maxOtherBytes) throw new Error(`${url.origin} answered with more than ${maxOtherBytes} bytes`)
    return copy(response, text)
  }

  async function post(url: URL, init: RequestInit, headers: Headers): Promise<Response> {
    const body = typeof init.body === 'string' ? init.body : ''
    const id = idOf(body.slice(0, 256), body.slice(-256))
    endCancelled(body)
    if (id === undefined) return await answer(url, await options.fetch(url, { ...init, headers }), headers)
    const controller = new AbortController()
    open.set(id, controller)
    const done = () => {
      if (open.get(id) === controller) open.delete(id)
    }
    const signal = init.signal ? AbortSignal.any([init.signal, controller.signal]) : controller.signal
    try {
      return await answer(url, await options.fetch(url, { ...init, headers, signal }), headers, { id, done })
    } catch (error) {
      done()
      throw error
    }
  }

  async function answer(
    url: URL,
    response: Response,
    headers: Headers,
    request?: { id: RequestId; done(): void },
  ): Promise<Response> {
    if (!response.ok || !response.body) {
      const { text } = await readText(response, maxOtherBytes)
      request?.done()
      const refused = copy(response, text)
      const authorization = headers.get('authorization')
      if (authorization !== null) authorizationOf.set(refused, authorization)
      return refused
    }
    const { max_result_bytes } = options
    if (/^text\/event-stream\b/i.test(response.headers.get('content-type') ?? '')) {
      opened = true
      const events = filterEvents(response.body, {
        max_result_bytes,
        request_id: request?.id,
        budget,
        onOther: (event, data) => {
          if (event === 'endpoint' && URL.canParse(data, url.href)) endpoint = new URL(data, url).href
        },
        onEnd: () => {
          request?.done()
          if (options.kind === 'sse') options.onStreamEnd()
        },
      })
      return copy(response, events)
    }
    const limit = messageLimit(max_result_bytes)
    const { text, bytes } = await readText(response, limit)
    request?.done()
    const problem = bytes > limit ? tooLarge(bytes, max_result_bytes) : resultProblem(text)
    if (problem === undefined) return copy(response, text)
    if (!request) throw new Error(problem)
    return copy(response, JSON.stringify(refusal(request.id, problem)))
  }

  return async (input, init = {}) => {
    const url = new URL(input)
    if (!isMessage(url)) return await other(url, init)
    const headers = new Headers(init.headers)
    for (const [name, value] of Object.entries(options.headers)) headers.set(name, value.reveal())
    if ((init.method ?? 'GET').toUpperCase() !== 'GET') return await post(url, init, headers)
    if (mayOpenStream()) return await answer(url, await options.fetch(url, { ...init, headers }), headers)
    if (options.kind === 'sse') options.onStreamEnd()
    // The SDK gives up on a stream that is answered so.
    return new Response(null, { status: options.kind === 'sse' ? 204 : 405 })
  }
}

function resultProblem(text: string): string | undefined {
  const problem = jsonProblem(text)
  return problem && `the result ${problem}`
}
