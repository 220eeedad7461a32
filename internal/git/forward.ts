// Forwards one request to a remote and its answer. Bodies are streamed in both directions with backpressure. Headers are set
// here, not forwarded; the credential is sent to the remote's own origin only. An answer that is not in git's protocol is never
// forwarded: only the text of an error is used, without the credential.
import { Agent as HttpAgent, type IncomingMessage, request as overHttp, type ServerResponse } from 'node:http'
import { Agent as HttpsAgent, request as overHttps } from 'node:https'
import type { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Credential } from '../config/models.ts'
import { Fault, messageOf } from '../fault.ts'
import { authorization, movedBase, type Route, secretForms, targetOf } from './remote.ts'
import { createScrub, scrubText } from './scrub.ts'

const mostRedirects = 3
const errorBytes = 4096
const errorMs = 5000
const redirects = new Set([301, 302, 303, 307, 308])

const header = (value: string | string[] | undefined, pattern: RegExp): string | undefined =>
  typeof value === 'string' && pattern.test(value) ? value : undefined

function headersFor(route: Route, request: IncomingMessage, credential: Credential | undefined) {
  const { headers } = request
  const protocol = header(headers['git-protocol'], /^[a-z0-9=:.-]{1,100}$/)
  const chosen: Record<string, string> = {
    // Git hosts distinguish git clients from browsers by it.
    'user-agent': header(headers['user-agent'], /^git\/[\w.-]{1,50}$/) ?? 'git/oubliette',
    accept: route.method === 'GET' ? '*/*' : route.answer,
    // An uncompressed answer can be searched for the credential.
    'accept-encoding': 'identity',
    ...(protocol ? { 'git-protocol': protocol } : {}),
    ...(credential ? { authorization: authorization(credential) } : {}),
  }
  if (route.method === 'GET') return chosen
  const length = header(headers['content-length'], /^\d{1,15}$/)
  return {
    ...chosen,
    'content-type': `application/x-${route.service}-request`,
    ...(headers['content-encoding'] === 'gzip' ? { 'content-encoding': 'gzip' } : {}),
    ...(length === undefined ? {} : { 'content-length': length }),
  }
}

/** The text of the remote's error, if it is plain text. */
async function errorText(incoming: IncomingMessage): Promise<string> {
  if (!/^text\/plain\b/i.test(incoming.headers['content-type'] ?? '')) return ''
  const parts: Buffer[] = []
  let read = 0
  const late = setTimeout(() => incoming.destroy(), errorMs)
  try {
    for await (const part of incoming as AsyncIterable<Buffer>) {
      parts.push(part)
      read += part.length
      if (read >= errorBytes) break
    }
  } catch {
    // The status is sufficient.
  } finally {
    clearTimeout(late)
  }
  return Buffer.concat(parts).subarray(0, errorBytes).toString('utf8')
}

function refusal(status: number, with_credential: boolean): Fault {
  if (status === 401 || status === 403)
    return new Fault(
      'forbidden',
      with_credential
        ? `the remote rejected the project's credential (HTTP ${status})`
        : `the remote requires a credential (HTTP ${status})`,
      { hint: 'an administrator can set a git credential with project update and credential_refs' },
    )
  if (status === 404 || status === 410)
    return new Fault(
      'not_found',
      `the remote does not have this repository, or access is denied (HTTP ${status})`,
    )
  return new Fault('unavailable', `the remote answered with HTTP ${status}`)
}

export type Exchange = {
  route: Route
  base: URL
  credential: Credential | undefined
  request: IncomingMessage
  response: ServerResponse
  signal: AbortSignal
  /** Limits one direction to the rate of the container. */
  throttle: () => Transform
}

export function createForward(options: { idle_timeout_ms: number }) {
  // Node's agents support HTTP_PROXY, HTTPS_PROXY and NO_PROXY if they get the environment. Connections are not kept alive: a
  // streamed body cannot be repeated when a kept connection turns out to be closed.
  const common = { keepAlive: false, proxyEnv: process.env }
  const plain = new HttpAgent(common)
  const secure = new HttpsAgent(common)

  async function ask({ route, base, credential, request, signal, throttle }: Exchange) {
    const target = targetOf(base, route)
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
    const how = {
      method: route.method,
      headers: headersFor(route, request, credential),
      timeout: options.idle_timeout_ms,
      signal,
    }
    const outgoing =
      target.protocol === 'https:'
        ? overHttps(target, { ...how, agent: secure })
        : overHttp(target, { ...how, agent: plain })
    outgoing.once('response', resolve)
    outgoing.on('error', reject)
    outgoing.once('timeout', () =>
      outgoing.destroy(new Error(`no data for ${Math.round(options.idle_timeout_ms / 1000)} s`)),
    )
    if (route.method === 'GET') outgoing.end()
    else {
      request.pipe(throttle()).pipe(outgoing)
      request.once('close', () => {
        if (!request.complete) outgoing.destroy()
      })
    }
    try {
      return await promise
    } catch (error) {
      if (signal.aborted) throw signal.reason
      throw new Fault('unavailable', `failed to reach the remote: ${messageOf(error)}`, { cause: error })
    }
  }

  /** The answer and the base URL it came from: a remote may have moved on its own host. */
  async function begin(exchange: Exchange): Promise<{ incoming: IncomingMessage; base: URL }> {
    let { base } = exchange
    for (let hop = 0; ; hop += 1) {
      const incoming = await ask({ ...exchange, base })
      if (!redirects.has(incoming.statusCode ?? 0)) return { incoming, base }
      incoming.destroy()
      const from = targetOf(base, exchange.route)
      const { location } = incoming.headers
      const next = location === undefined ? undefined : movedBase(from, location, exchange.route)
      if (!next || exchange.route.method === 'POST' || hop >= mostRedirects)
        throw new Fault(
          'unavailable',
          'the remote redirects to another address; the redirect is not followed',
          {
            hint: 'create the project with the new address as remote_url',
          },
        )
      base = next
    }
  }

  return {
    /** Returns the base URL to use from now on and the bytes received. Throws a fault if nothing was written yet. */
    async pass(exchange: Exchange): Promise<{ base: URL; bytes: number }> {
      const { route, credential, response } = exchange
      const secrets = secretForms(credential)
      const { incoming, base } = await begin(exchange)
      const status = incoming.statusCode ?? 502
      const type = (incoming.headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase()
      if (status !== 200) {
        const said = scrubText(await errorText(incoming), secrets)
        incoming.destroy()
        const fault = refusal(status, credential !== undefined)
        const text = said
          .replace(/\p{Cc}+/gu, ' ')
          .trim()
          .slice(0, 500)
        throw text ? new Fault(fault.kind, `${fault.message}: ${text}`, { hint: fault.hint }) : fault
      }
      const encoding = incoming.headers['content-encoding'] ?? 'identity'
      if (type !== route.answer || encoding !== 'identity') {
        incoming.destroy()
        throw new Fault('unavailable', 'the remote does not support the git smart HTTP protocol', {
          hint: 'check remote_url',
        })
      }
      const length = header(incoming.headers['content-length'], /^\d{1,15}$/)
      response.writeHead(200, {
        'content-type': type,
        'cache-control': 'no-cache',
        ...(length === undefined ? {} : { 'content-length': length }),
      })
      let bytes = 0
      incoming.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
      // A broken stream must not look complete: the pipeline destroys the response on error.
      await pipeline(incoming, exchange.throttle(), createScrub(secrets), response)
      return { base, bytes }
    },
    close() {
      plain.destroy()
      secure.destroy()
    },
  }
}
