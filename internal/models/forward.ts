// One request to a provider and its answer, passed on as it comes: nothing is held back, the slower side sets the pace,
// and whoever hangs up ends it for both.
import { Agent as HttpAgent, type IncomingMessage, request as overHttp, type ServerResponse } from 'node:http'
import { Agent as HttpsAgent, request as overHttps } from 'node:https'
import { Fault, messageOf } from '../fault.ts'
import { createMeter } from './meter.ts'
import { type Outgoing, passedOn } from './outgoing.ts'
import type { Reading } from './usage.ts'

/** A model that says nothing at all for this long is not going to. */
const silence_ms = 15 * 60_000

export type Answered = { status: number; usage: Reading | undefined; whole: boolean }

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
  function send(to: Outgoing, body: Buffer) {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
    const how = { method: to.method, headers: to.headers, timeout: silence_ms }
    const request =
      to.url.protocol === 'https:'
        ? overHttps(to.url, { ...how, agent: secure })
        : overHttp(to.url, { ...how, agent: plain })
    request.once('response', resolve)
    request.on('error', reject)
    request.once('timeout', () => request.destroy(new Error('it said nothing for too long')))
    request.setNoDelay(true)
    request.end(body)
    return { answer: promise, request }
  }

  /** A kept connection may be closed by the provider in the moment in which we use it: that says nothing about it. */
  async function ask(to: Outgoing, body: Buffer, signal: AbortSignal): Promise<IncomingMessage> {
    for (;;) {
      const { answer, request } = send(to, body)
      const drop = () => request.destroy(new Error('the droid hung up'))
      signal.addEventListener('abort', drop, { once: true })
      try {
        const incoming = await answer
        incoming.once('close', () => signal.removeEventListener('abort', drop))
        return incoming
      } catch (error) {
        signal.removeEventListener('abort', drop)
        const stale = request.reusedSocket && (error as NodeJS.ErrnoException).code === 'ECONNRESET'
        if (stale && !signal.aborted) continue
        throw new Fault('unavailable', `the model provider cannot be reached: ${messageOf(error)}`, {
          cause: error,
          retry_after_seconds: 1,
        })
      }
    }
  }

  /** Until the provider begins to answer; the body is not needed any more then. */
  async function begin(to: Outgoing, body: Buffer, response: ServerResponse): Promise<IncomingMessage> {
    const leave = new AbortController()
    // Whoever asked is gone: the model need not go on.
    response.once('close', () => {
      if (!response.writableFinished) leave.abort()
    })
    return await ask(to, body, leave.signal)
  }

  async function passOn(incoming: IncomingMessage, response: ServerResponse): Promise<Answered> {
    const meter = createMeter(incoming.headers['content-type'])
    response.writeHead(incoming.statusCode ?? 502, passedOn(incoming.headers))
    response.flushHeaders()
    const { promise: over, resolve: end } = Promise.withResolvers<boolean>()
    /** What was read at once is written at once: a provider's pieces are small. Nothing waits for what comes later. */
    let pieces: Buffer[] = []
    const pass = () => {
      const read = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
      pieces = []
      meter?.take(read)
      // To write to one that is gone would be an error of its own; that it is gone is known already.
      if (response.destroyed || response.write(read)) return
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
    // A stream that broke must not look like one that ended.
    if (whole) response.end()
    else response.destroy()
    return { status: incoming.statusCode ?? 502, usage: meter?.end(), whole }
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
