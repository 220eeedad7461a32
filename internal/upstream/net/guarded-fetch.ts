// `fetch` for addresses that others choose. A name is resolved once, every address of it is checked, and the connection goes to a
// checked address: a name that resolves differently a moment later gains nothing. Redirects pass the same checks, and take
// nothing secret to another origin.
import { isIP } from 'node:net'
import { Agent, buildConnector, fetch as undiciFetch } from 'undici'
import { Fault } from '../../fault.ts'
import type { GuardedFetch } from '../upstream.ts'
import { plainAddress } from './addresses.ts'
import { createResolve, type Resolve } from './resolve.ts'

export type GuardedFetchOptions = {
  /** Asked for each address; IPv6 addresses that stand for an IPv4 address are given as that. */
  allow(address: string): boolean
  resolve?: Resolve
  connect_timeout_ms?: number
  /** Without bytes in this time, the request fails. */
  silence_timeout_ms?: number
  /** Of one response; unlimited without it. */
  max_response_bytes?: number
}

export type ClosableFetch = GuardedFetch & { close(): Promise<void> }

const maxRedirects = 5
const maxConnections = 64
const redirects = new Set([301, 302, 303, 307, 308])
/** What another origin may see. All else may be a secret. */
const publicHeaders = new Set(['accept', 'accept-language', 'user-agent', 'mcp-protocol-version'])

export function createGuardedFetch(options: GuardedFetchOptions): ClosableFetch {
  const {
    allow,
    resolve = createResolve(),
    connect_timeout_ms = 5_000,
    silence_timeout_ms = 600_000,
  } = options
  const connect = buildConnector({ timeout: connect_timeout_ms })

  async function addressesOf(hostname: string): Promise<string[]> {
    const literal = plainAddress(hostname)
    const found = literal === undefined ? await lookUp(hostname) : [literal]
    for (const address of found) {
      const plain = plainAddress(address)
      if (plain === undefined || !allow(plain))
        throw new Fault('forbidden', `the address of "${hostname}" is not allowed`, {
          hint: 'only addresses that the network policy allows can be used; private and local ones must be listed in the config',
        })
    }
    return found
  }

  async function lookUp(hostname: string): Promise<string[]> {
    const found = await resolve(hostname).catch((error: unknown) => {
      throw new Fault('unavailable', `failed to resolve "${hostname}"`, { cause: error })
    })
    if (found.length === 0) throw new Fault('unavailable', `"${hostname}" has no address`)
    return found
  }

  const agent = new Agent({
    connections: maxConnections,
    headersTimeout: silence_timeout_ms,
    bodyTimeout: silence_timeout_ms,
    maxResponseSize: options.max_response_bytes ?? -1,
    // HTTP/2 would share one connection between policies of names.
    allowH2: false,
    connect(target, callback) {
      void (async () => {
        const addresses = await addressesOf(target.hostname)
        let last: Error | undefined
        for (const hostname of addresses) {
          try {
            return await connectTo({ ...target, hostname })
          } catch (error) {
            last = error as Error
          }
        }
        throw last
      })().then(
        (socket) => callback(null, socket),
        (error: Error) => callback(error, null),
      )
    },
  })

  type Target = Parameters<typeof connect>[0]
  type Socket = Exclude<Parameters<Parameters<typeof connect>[1]>[1], null | undefined>
  /** The certificate is checked against the name, which `host` keeps. */
  function connectTo(target: Target): Promise<Socket> {
    return new Promise((done, failed) => {
      connect(target, (error, socket) => (error || !socket ? failed(error) : done(socket)))
    })
  }

  async function once(url: URL, init: RequestInit): Promise<Response> {
    if (url.protocol !== 'http:' && url.protocol !== 'https:')
      throw new Fault('invalid', `"${url.protocol}" is not a protocol of an upstream`, {
        hint: 'use http or https',
      })
    // Before anything is sent on a connection that exists already, too: the policy may have been tightened.
    if (isIP(url.hostname.replace(/^\[|\]$/g, ''))) await addressesOf(url.hostname)
    const request = { ...init, redirect: 'manual', dispatcher: agent } as unknown as Parameters<
      typeof undiciFetch
    >[1]
    return (await undiciFetch(url, request)) as unknown as Response
  }

  const guarded: GuardedFetch = async (input, init = {}) => {
    let url = new URL(input)
    let request = init
    const method = (init.method ?? 'GET').toUpperCase()
    for (let followed = 0; ; followed++) {
      const response = await once(url, request)
      const location = redirects.has(response.status) ? response.headers.get('location') : null
      if (location === null || init.redirect === 'manual') return response
      if (init.redirect === 'error')
        throw new Fault('unavailable', `${url.origin} redirects, which is not allowed here`)
      if (!URL.canParse(location, url.href)) return response
      const next = new URL(location, url)
      const isSafe = method === 'GET' || method === 'HEAD'
      const downgrade = url.protocol === 'https:' && next.protocol !== 'https:'
      // A body is sent to no other place than the one it was meant for.
      if (!isSafe || downgrade || next.username || next.password) return response
      if (followed === maxRedirects) throw new Fault('unavailable', `${url.origin} redirects too often`)
      await response.body?.cancel()
      if (next.origin !== url.origin) {
        const kept = [...new Headers(request.headers)].filter(([name]) => publicHeaders.has(name))
        request = { ...request, headers: kept }
      }
      url = next
    }
  }

  return Object.assign(guarded, { close: async () => await agent.destroy() })
}
