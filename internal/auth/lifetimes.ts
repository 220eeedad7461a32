// The lifetime of credentials, for everything that outlives the check of a request: streams, calls that wait, calls of
// droids. Expiry and revocation are one event here: a watcher of a credential is called once, when it ends. One timer serves
// all credentials. Whether a credential is valid now is decided by its check (`tokens.ts`, `oidc.ts`).
import { Fault } from '../fault.ts'
import type { Caller } from './caller.ts'

export type Credential = Pick<Caller, 'token_id' | 'expires_at'>

export interface Lifetimes {
  /** `ended` is called once, immediately if the credential has expired. Returns a function that stops watching. */
  watch(credential: Credential, ended: (why: Fault) => void): () => void
  /** These tokens were revoked, or do not exist any more. */
  revoke(token_ids: Iterable<string>): void
  /** The watched tokens, to look for revocations that were missed. */
  watched(): string[]
  close(): void
}

type Watched = { token_id: string | null; expires_ms: number; watchers: Set<(why: Fault) => void> }

/** The clock may be changed or the machine may sleep, so a distant expiry is rechecked. */
const recheckMs = 30_000

const expired = () =>
  new Fault('unauthenticated', 'the token has expired', {
    hint: 'use a new token; check whether the call took effect',
  })
const revoked = () =>
  new Fault('unauthenticated', 'the token was revoked', {
    hint: 'use another token; check whether the call took effect',
  })

export function createLifetimes(now: () => number = Date.now): Lifetimes {
  const known = new Map<string, Watched>()
  let timer: NodeJS.Timeout | undefined
  let next_ms = Number.POSITIVE_INFINITY

  function arm(expires_ms: number): void {
    if (expires_ms >= next_ms) return
    next_ms = expires_ms
    clearTimeout(timer)
    timer = setTimeout(look, Math.min(recheckMs, Math.max(0, expires_ms - now()))).unref()
  }

  function look(): void {
    next_ms = Number.POSITIVE_INFINITY
    const at = now()
    const over = [...known].filter(([, { expires_ms }]) => expires_ms <= at)
    for (const [key] of over) known.delete(key)
    let first = Number.POSITIVE_INFINITY
    for (const { expires_ms } of known.values()) first = Math.min(first, expires_ms)
    arm(first)
    for (const [, credential] of over) tell(credential, expired)
  }

  function tell({ watchers }: Watched, why: () => Fault): void {
    for (const watcher of [...watchers]) if (watchers.delete(watcher)) watcher(why())
  }

  return {
    watch({ token_id, expires_at }, ended) {
      const expires_ms = expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at)
      if (expires_ms <= now()) {
        ended(expired())
        return () => undefined
      }
      const key = `${token_id} ${expires_at}`
      const credential = known.get(key) ?? { token_id, expires_ms, watchers: new Set() }
      known.set(key, credential)
      // A separate function: the same callback may be passed twice.
      const watcher = (why: Fault) => ended(why)
      credential.watchers.add(watcher)
      arm(expires_ms)
      return () => {
        credential.watchers.delete(watcher)
        if (credential.watchers.size === 0 && known.get(key) === credential) known.delete(key)
      }
    },
    revoke(token_ids) {
      const ids = new Set(token_ids)
      const over = [...known].filter(([, { token_id }]) => token_id !== null && ids.has(token_id))
      for (const [key] of over) known.delete(key)
      for (const [, credential] of over) tell(credential, revoked)
    },
    watched: () => [...new Set([...known.values()].flatMap(({ token_id }) => token_id ?? []))],
    close: () => clearTimeout(timer),
  }
}

/** A signal that is aborted with another one or with the credential, whichever is first; dispose it when the work ends. */
export function whileValid(
  lifetimes: Lifetimes,
  credential: Credential,
  signal: AbortSignal,
): { signal: AbortSignal; ended: Promise<never>; [Symbol.dispose](): void } {
  const until = new AbortController()
  const { promise: ended, reject } = Promise.withResolvers<never>()
  // Often nothing awaits it.
  ended.catch(() => undefined)
  const release = lifetimes.watch(credential, (why) => {
    until.abort(why)
    reject(why)
  })
  const onAbort = () => until.abort(signal.reason)
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  return {
    signal: until.signal,
    ended,
    [Symbol.dispose]() {
      release()
      signal.removeEventListener('abort', onAbort)
    },
  }
}
