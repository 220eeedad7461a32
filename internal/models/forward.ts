// Forwards one request to a provider and streams its answer with backpressure. A disconnect of either side ends both. A
// credential that the answer repeats is masked.
import {
  type ClientRequest,
  Agent as HttpAgent,
  type IncomingMessage,
  request as overHttp,
  type ServerResponse,
} from 'node:http'
import { Agent as HttpsAgent, request as overHttps } from 'node:https'
import { Fault, messageOf } from '../fault.ts'
import { type Outgoing, passedBack } from './providers/outgoing.ts'
import type { Scrubber } from './scrub.ts'
import { createMeter, type Elsewhere } from './usage/meter.ts'
import { readUsageHeaders, type UsageReading } from './usage/usage.ts'

/** Time without data after which a request fails. */
const idleTimeoutMs = 15 * 60_000
/** Bytes per write; encrypting a long body at once would block the event loop. */
const pieceBytes = 256 * 1024

/** What is looked for in an answer. */
export type Reader = { scrubber: Scrubber; elsewhere: Elsewhere }
export type Answered = { status: number; usage: UsageReading | undefined; whole: boolean }

/** A long body in pieces, at the pace of the provider. */
async function write(request: ClientRequest, body: Buffer): Promise<void> {
  let from = 0
  for (; body.length - from > pieceBytes; from += pieceBytes) {
    if (request.destroyed) return
    if (!request.write(body.subarray(from, from + pieceBytes)))
      await new Promise<void>((done) => request.once('drain', done).once('close', done))
  }
  request.end(body.subarray(from))
}

/** Calls back as soon as something of the request can be on its way. */
function onConnection(request: ClientRequest, secure: boolean, connected: () => void): void {
  request.once('socket', (socket) => {
    if (socket.connecting) socket.once(secure ? 'secureConnect' : 'connect', connected)
    else connected()
  })
}

export function createForward(options: { allow_proxy: boolean } = { allow_proxy: true }) {
  // Node's own agents know HTTP_PROXY, HTTPS_PROXY and NO_PROXY, when they are given the environment.
  const common = {
    keepAlive: true,
    scheduling: 'lifo' as const,
    ...(options.allow_proxy ? { proxyEnv: process.env } : {}),
  }
  const plain = new HttpAgent(common)
  const secure = new HttpsAgent(common)

  /** One attempt. */
  function send(to: Outgoing, body: Buffer, connected: () => void) {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
    const how = { method: to.method, headers: to.headers, timeout: idleTimeoutMs }
    const request =
      to.url.protocol === 'https:'
        ? overHttps(to.url, { ...how, agent: secure })
        : overHttp(to.url, { ...how, agent: plain })
    request.once('response', resolve)
    request.on('error', reject)
    request.once('timeout', () => request.destroy(new Error('no data for too long')))
    request.setNoDelay(true)
    onConnection(request, to.url.protocol === 'https:', connected)
    // Write errors are reported by the request itself.
    void write(request, body)
    return { answer: promise, request }
  }

  /** Retries when the provider closed a kept-alive connection at the moment of its reuse. */
  async function ask(
    to: Outgoing,
    body: Buffer,
    signal: AbortSignal,
    connected: () => void,
  ): Promise<IncomingMessage> {
    for (;;) {
      signal.throwIfAborted()
      const { answer, request } = send(to, body, connected)
      const drop = () => request.destroy(new Error('the droid closed the connection'))
      signal.addEventListener('abort', drop, { once: true })
      try {
        const incoming = await answer
        incoming.once('close', () => signal.removeEventListener('abort', drop))
        return incoming
      } catch (error) {
        signal.removeEventListener('abort', drop)
        const stale = request.reusedSocket && (error as NodeJS.ErrnoException).code === 'ECONNRESET'
        if (stale && !signal.aborted) continue
        throw new Fault('unavailable', `failed to reach the model provider: ${messageOf(error)}`, {
          cause: error,
          retry_after_seconds: 1,
        })
      }
    }
  }

  /** Settles when the provider begins to answer; the body is not needed after that. */
  async function begin(
    to: Outgoing,
    body: Buffer,
    response: ServerResponse,
    connected: () => void = () => undefined,
  ): Promise<IncomingMessage> {
    const leave = new AbortController()
    // The client has disconnected: the provider's request is aborted.
    response.once('close', () => {
      if (!response.writableFinished) leave.abort()
    })
    if (response.destroyed) leave.abort(new Fault('unavailable', 'the droid closed the connection'))
    return await ask(to, body, leave.signal, connected)
  }

  async function passOn(
    incoming: IncomingMessage,
    response: ServerResponse,
    { scrubber, elsewhere }: Reader,
  ): Promise<Answered> {
    const status = incoming.statusCode ?? 502
    const encoding = incoming.headers['content-encoding']
    if (encoding !== undefined && encoding !== 'identity') {
      // The request asked for identity encoding: an encoded answer can be neither metered nor searched for credentials.
      incoming.destroy()
      throw new Fault('unavailable', `the model provider answered with content-encoding ${encoding}`)
    }
    const meter = createMeter(incoming.headers['content-type'], elsewhere)
    const scrub = scrubber.body(status >= 400)
    response.writeHead(status, scrubber.headers(passedBack(incoming.headers)))
    response.flushHeaders()
    const { promise: over, resolve: end } = Promise.withResolvers<boolean>()
    /** Chunks of one read are written together, because a provider's chunks are small. */
    let pieces: Buffer[] = []
    const pass = () => {
      const read = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
      pieces = []
      meter?.take(read)
      const clean = scrub.take(read)
      // Writing to a closed response would be another error.
      if (response.destroyed || clean.length === 0 || response.write(clean)) return
      incoming.pause()
      response.once('drain', () => incoming.resume())
    }
    incoming.on('data', (piece: Buffer) => {
      if (pieces.push(piece) === 1) process.nextTick(pass)
    })
    incoming.once('end', () => end(true))
    incoming.once('close', () => end(incoming.complete))
    incoming.once('error', () => end(false))
    const whole = await over
    // A broken stream must not look complete.
    if (whole) response.end(scrub.end())
    else response.destroy()
    return { status, usage: (await meter?.end()) ?? readUsageHeaders(incoming.headers), whole }
  }

  return {
    begin,
    passOn,
    close() {
      plain.destroy()
      secure.destroy()
    },
  }
}
