// From the Authorization header to the caller, for every request. How often is bounded twice: failures by address,
// so that guessing is slow, and requests by token. A valid token is let in whatever its neighbours at the same address do.
import type { Caller } from '../auth/caller.ts'
import { jsonBounds, measureJson } from '../event-loop/json-bounds.ts'
import { Fault } from '../fault.ts'

export interface Rate {
  take(key: string, cost?: number): { ok: true } | { ok: false; retry_after_seconds: number }
}
export type Authenticate = (bearer: string, address: string) => Promise<Caller>

function bounded(rate: Rate, key: string, what: string, cost?: number) {
  const taken = rate.take(key, cost)
  if (taken.ok) return
  const retry_after_seconds = Math.max(1, Math.ceil(taken.retry_after_seconds))
  throw new Fault('exhausted', what, { hint: `try again in ${retry_after_seconds} s`, retry_after_seconds })
}

/** Parsing and checking a body of very many values takes as long as so many requests; a body of text does not. */
const valuesAtOnce = 1_000
const requestsPerThousand = 20
const worthMeasuring = 2 * valuesAtOnce

const keyOf = (caller: Caller) => caller.token_id ?? `${caller.kind}:${caller.id}`

/** Refuses a body that its token cannot afford. The caller has been let in already. */
export function boundBody(rate: Rate, caller: Caller, body: Uint8Array): void {
  if (body.length < worthMeasuring) return
  // What is measured is ASCII, and no byte of another character looks like it.
  const { containers, commas } = measureJson(
    Buffer.from(body.buffer, body.byteOffset, body.length).toString('latin1'),
    jsonBounds.values,
  )
  const cost = Math.floor((containers + commas) / valuesAtOnce) * requestsPerThousand
  if (cost > 0) bounded(rate, keyOf(caller), 'this token sends too much JSON', cost)
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
      bounded(rate.requests, keyOf(caller), 'this token calls too often')
      return caller
    } catch (thrown) {
      if (thrown instanceof Fault && thrown.kind === 'unauthenticated')
        bounded(rate.failures, address, 'too many requests without a valid token from this address')
      throw thrown
    }
  }
}
