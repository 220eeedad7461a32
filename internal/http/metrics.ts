// `/metrics`: who may read it without a token, and the names of routes in it.
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'

export type MetricsSource = {
  request(measured: { route: string; method: string; status: number; seconds: number }): void
  render(): Promise<string>
  readonly content_type: string
}

const routes: [RegExp, string][] = [
  [/^\/(mcp|healthz|readyz|metrics)$/, ''],
  [/^\/sessions\/[^/]+\/events$/, '/sessions/:id/events'],
  [/^\/projects\/[^/]+\/events$/, '/projects/:id/events'],
  [/^\/workspaces\/[^/]+\/archive$/, '/workspaces/:id/archive'],
  [/^\/\.well-known\//, '/.well-known'],
]

/** A route of this server, or `other`: what a caller requests is not a label. */
export function routeOf(path: string): string {
  const found = routes.find(([pattern]) => pattern.test(path))
  return found ? found[1] || path : 'other'
}

const isLoopback = (address: string) =>
  address === '::1' || (isIP(address) === 4 && address.startsWith('127.'))

/** Set by proxies: the connection is local, but its caller need not be. */
const forwarding = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via']

/** A program on this machine that connects directly: by its address, the host that it asked for, and no sign of a proxy. */
export function maySkipToken({ socket, headers }: IncomingMessage): boolean {
  const address = (socket.remoteAddress ?? '').replace(/^::ffff:/, '')
  if (!isLoopback(address) || forwarding.some((name) => headers[name] !== undefined)) return false
  const host = (headers.host ?? '').replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
  return host === 'localhost' || isLoopback(host)
}

export async function metricsResponse(metrics: MetricsSource): Promise<Response> {
  return new Response(await metrics.render(), {
    headers: {
      'Content-Type': metrics.content_type,
      'Cache-Control': 'no-store',
      // A page of another site can request it from a browser on this machine, but must not read it.
      'Cross-Origin-Resource-Policy': 'same-origin',
      'X-Content-Type-Options': 'nosniff',
    },
  })
}
