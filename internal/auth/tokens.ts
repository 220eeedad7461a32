// Tokens: generation, hashing and the check of a bearer. A bearer is looked up by its SHA-256; the secret itself is not
// kept. Known tokens are cached for a short time so that a busy caller does not cost a query per request; a revocation
// clears the cache at once here, and through NOTIFY on other servers of the same database.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { Fault } from '../fault.ts'
import type { Caller } from './caller.ts'
import { parseScope } from './scope.ts'

export const tokenPattern = /^oub_[0-9a-f]{64}$/
export const newSecret = (): string => `oub_${randomBytes(32).toString('hex')}`
export const hashOf = (secret: string): Buffer => createHash('sha256').update(secret).digest()

export type TokenRow = {
  id: string
  name: string
  scope: string
  hash: Buffer
  expires_at: string | null
  revoked_at: string | null
  parent_session_id: string | null
}

/** The door's view of the token table; the store implements it. */
export type TokenSource = {
  byHash(hash: Buffer): Promise<TokenRow | undefined>
  /** May be late and may be lost: it is shown to people and decides nothing. */
  used(id: string): void
}

const refuse = (message: string, hint?: string) => new Fault('unauthenticated', message, hint ? { hint } : {})
const rememberMs = 30_000
const rememberAtMost = 10_000
/** Of a read during which tokens were revoked. */
const most_tries = 20

export function createTokenCheck(source: TokenSource) {
  const known = new LRUCache<string, TokenRow>({ max: rememberAtMost, ttl: rememberMs })
  let forgotten = 0

  async function look(hash: Buffer, key: string): Promise<TokenRow | undefined> {
    const remembered = known.get(key)
    if (remembered) return remembered
    for (let tries = 0; tries < most_tries; tries++) {
      const before = forgotten
      const row = await source.byHash(hash)
      // What was read before a revocation must neither be remembered nor accepted after it.
      if (before !== forgotten) continue
      if (row) known.set(key, row)
      return row
    }
    throw new Fault('unavailable', 'failed to check the token: tokens are being revoked', {
      hint: 'try again',
    })
  }

  async function check(secret: string): Promise<Caller> {
    if (!tokenPattern.test(secret)) throw refuse('the bearer is not a token of this server')
    const hash = hashOf(secret)
    const row = await look(hash, hash.toString('hex'))
    if (!row || !timingSafeEqual(row.hash, hash)) throw refuse('unknown token')
    if (row.revoked_at) throw refuse('the token was revoked')
    if (row.expires_at && Date.parse(row.expires_at) <= Date.now()) throw refuse('the token has expired')
    source.used(row.id)
    return {
      kind: 'token',
      id: row.id,
      name: row.name,
      scope: parseScope(row.scope),
      token_id: row.id,
      expires_at: row.expires_at,
      ...(row.parent_session_id ? { session_id: row.parent_session_id } : {}),
    }
  }

  /** All cached tokens, or those that were created through one of these sessions. */
  function forget(session_ids?: ReadonlySet<string>): void {
    forgotten += 1
    for (const [key, { parent_session_id }] of [...known])
      if (!session_ids || (parent_session_id && session_ids.has(parent_session_id))) known.delete(key)
  }

  return { check, forget }
}
