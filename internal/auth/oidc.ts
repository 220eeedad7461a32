// Access tokens of an OpenID Connect issuer. jose checks signature, issuer, audience and times; the scope claim
// maps to ours. A token that carries several of our scopes gets the widest, one that carries none is refused.
import { createRemoteJWKSet, errors, jwtVerify } from 'jose'
import { Fault, messageOf } from '../fault.ts'
import type { Caller } from './caller.ts'
import { covers, parseScope, type Scope } from './scope.ts'

export type OidcOptions = { issuer: string; audience: string; scope_claim: string; jwks_uri?: string }

function scopesIn(claim: unknown): Scope[] {
  const words = Array.isArray(claim) ? claim : typeof claim === 'string' ? claim.split(' ') : []
  return words.flatMap((word) => {
    try {
      return [parseScope(String(word).replace(/^oubliette:/, ''))]
    } catch {
      // The claim also contains scopes of other applications.
      return []
    }
  })
}

async function discover(issuer: string): Promise<string> {
  const url = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(10_000) })
    const { jwks_uri } = (await response.json()) as { jwks_uri?: string }
    if (!response.ok || !jwks_uri) throw new Error(`HTTP ${response.status} without jwks_uri`)
    return jwks_uri
  } catch (error) {
    throw new Fault('unavailable', `the issuer ${issuer} does not answer: ${messageOf(error)}`, {
      cause: error,
    })
  }
}

export function createOidc(options: OidcOptions) {
  let keys: Promise<ReturnType<typeof createRemoteJWKSet>> | undefined

  function keySet() {
    keys ??= (async () => createRemoteJWKSet(new URL(options.jwks_uri ?? (await discover(options.issuer)))))()
    // The next request retries a failed discovery.
    keys.catch(() => {
      keys = undefined
    })
    return keys
  }

  return async function check(bearer: string): Promise<Caller> {
    const set = await keySet()
    const { payload } = await jwtVerify(bearer, set, {
      issuer: options.issuer,
      audience: options.audience,
      requiredClaims: ['exp', 'sub'],
    }).catch((error: unknown) => {
      if (error instanceof errors.JWKSTimeout)
        throw new Fault('unavailable', "failed to fetch the issuer's keys", { cause: error })
      throw new Fault('unauthenticated', `the access token is refused: ${messageOf(error)}`, { cause: error })
    })
    const scopes = scopesIn(payload[options.scope_claim])
    const widest = scopes.find((scope) => scopes.every((other) => covers(scope, other))) ?? scopes[0]
    if (!widest)
      throw new Fault(
        'forbidden',
        `the access token has no Oubliette scope in the claim "${options.scope_claim}"`,
      )
    const name = typeof payload.email === 'string' ? payload.email : payload.sub!
    const expires_at = new Date(payload.exp! * 1000).toISOString()
    return { kind: 'oidc', id: `oidc:${payload.sub}`, name, scope: widest, token_id: null, expires_at }
  }
}
