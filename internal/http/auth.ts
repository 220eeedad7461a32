// Finds the caller from the Authorization header of every request. Two rates apply: failures by address, so that guessing is
// slow, and requests by token. Failures of other clients at the same address do not affect a valid token.
import type { Caller } from '../auth/caller.ts'
import { Fault } from '../fault.ts'

export interface Rate {
  take(key: string, cost?: number): { ok: true } | { ok: false; retry_after_seconds: number }
}
export type Authenticate = (bearer: string, address: string) => Promise<Caller>

/** Throws `exhausted` when the bucket of this key is empty. */
export function bounded(rate: Rate, key: string, what: string, cost?: number) {
  const taken = rate.take(key, cost)
  if (taken.ok) return
  const retry_after_seconds = Math.max(1, Math.ceil(taken.retry_after_seconds))
  throw new Fault('exhausted', what, { hint: `try again in ${retry_after_seconds} s`, retry_after_seconds })
}

export const rateKey = (caller: Caller) => caller.token_id ?? `${caller.kind}:${caller.id}`

const bearerOf = (authorization: string | undefined) =>
  /^Bearer +([^\s,]+) *$/i.exec(authorization ?? '')?.[1]

/**
 * Throws if the token of a request was revoked since the request was accepted, also before this server is notified of it.
 * Tokens of an issuer are not revoked.
 */
export async function requireNotRevoked(
  authenticate: Authenticate,
  caller: Caller,
  authorization: string | undefined,
  address: string,
): Promise<void> {
  const bearer = bearerOf(authorization)
  if (caller.token_id !== null && bearer !== undefined) await authenticate(bearer, address)
}

export function createCallerCheck(parts: {
  authenticate: Authenticate
  rate: { failures: Rate; requests: Rate }
}): (authorization: string | undefined, address: string) => Promise<Caller> {
  const { authenticate, rate } = parts
  return async (authorization, address) => {
    const bearer = bearerOf(authorization)
    try {
      if (bearer === undefined)
        throw new Fault('unauthenticated', 'missing bearer token', {
          hint: 'send "Authorization: Bearer oub_…"',
        })
      const caller = await authenticate(bearer, address)
      bounded(rate.requests, rateKey(caller), 'this token exceeds its request rate')
      return caller
    } catch (thrown) {
      if (thrown instanceof Fault && thrown.kind === 'unauthenticated')
        bounded(rate.failures, address, 'too many requests without a valid token from this address')
      throw thrown
    }
  }
}

type Oidc = { issuer: string; audience: string }

export const metadataPath = '/.well-known/oauth-protected-resource'

/** An audience that is a URL is the public address of this server; behind a proxy the Host of the request is not. */
function originOf(oidc: Oidc, host: string): string {
  return URL.canParse(oidc.audience) && /^https?:/.test(oidc.audience)
    ? new URL(oidc.audience).origin
    : `http://${host}`
}

/** OAuth protected-resource metadata (RFC 9728): tells a client which issuer's tokens this server accepts. */
export function resourceMetadata(oidc: Oidc, host: string) {
  const origin = originOf(oidc, host)
  return {
    resource: oidc.audience.startsWith(`${origin}/`) ? oidc.audience : `${origin}/mcp`,
    resource_name: 'Oubliette',
    authorization_servers: [oidc.issuer],
    bearer_methods_supported: ['header'],
    scopes_supported: ['admin', 'admin:ro'],
  }
}

/** The challenge of a 401. */
export function challenge(oidc: Oidc | undefined, host: string, presented: boolean): string {
  const parts = ['realm="oubliette"']
  if (presented) parts.push('error="invalid_token"')
  if (oidc) parts.push(`resource_metadata="${originOf(oidc, host)}${metadataPath}/mcp"`)
  return `Bearer ${parts.join(', ')}`
}
