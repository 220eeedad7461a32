// From the Authorization header to the caller, for every request. How often is bounded twice: failures by address,
// so that guessing is slow, and requests by token. A valid token is let in whatever its neighbours at the same address do.
import type { Caller } from '../auth/caller.ts'
import { Fault } from '../fault.ts'

export interface Rate {
  take(key: string): { ok: true } | { ok: false; retry_after_seconds: number }
}
export type Authenticate = (bearer: string, address: string) => Promise<Caller>

function bounded(rate: Rate, key: string, what: string) {
  const taken = rate.take(key)
  if (taken.ok) return
  const retry_after_seconds = Math.max(1, Math.ceil(taken.retry_after_seconds))
  throw new Fault('exhausted', what, { hint: `try again in ${retry_after_seconds} s`, retry_after_seconds })
}

export function createCallerCheck(parts: {
  authenticate: Authenticate
  rate: { failures: Rate; requests: Rate }
}): (authorization: string | undefined, address: string) => Promise<Caller> {
  const { authenticate, rate } = parts
  return async (authorization, address) => {
    const bearer = /^Bearer +([^\s,]+) *$/i.exec(authorization ?? '')?.[1]
    try {
      if (bearer === undefined)
        throw new Fault('unauthenticated', 'the request carries no bearer token', {
          hint: 'send "Authorization: Bearer oub_…"',
        })
      const caller = await authenticate(bearer, address)
      bounded(rate.requests, caller.token_id ?? `${caller.kind}:${caller.id}`, 'this token calls too often')
      return caller
    } catch (thrown) {
      if (thrown instanceof Fault && thrown.kind === 'unauthenticated')
        bounded(rate.failures, address, 'too many requests without a valid token from this address')
      throw thrown
    }
  }
}
