// Authentication of callers: tokens of Oubliette and of an OpenID Connect issuer, the streams that end with a token, and
// the revocation of tokens.
import type { Caller } from '../../../internal/auth/caller.ts'
import { createLifetimes } from '../../../internal/auth/lifetimes.ts'
import { createOidc } from '../../../internal/auth/oidc.ts'
import { createOpenStreams } from '../../../internal/auth/open-streams.ts'
import { createTokenCheck } from '../../../internal/auth/tokens.ts'
import type { Settings } from '../../../internal/config/load.ts'
import type { Log } from '../../../internal/log.ts'
import { ensureAdminToken, onTokenChange, tokenSource } from '../../../internal/manager/access/tokens.ts'
import type { Managers } from '../../../internal/manager/managers.ts'
import type { Store } from '../../../internal/store/open.ts'
import { endedAmong } from '../../../internal/store/rows/tokens.ts'

/** Delay before the streams of revoked tokens end. */
const revocationDelayMs = 1_000

export type Auth = Awaited<ReturnType<typeof startAuth>>

export async function startAuth(settings: Settings, log: Log, stack: AsyncDisposableStack, store: Store) {
  const { home, config } = settings
  await ensureAdminToken(store.db, home, settings.admin_token)
  const source = tokenSource(store.db, log)
  stack.defer(() => source.close())
  const tokens = createTokenCheck(source)
  const lifetimes = createLifetimes()
  stack.defer(() => lifetimes.close())
  const streams = createOpenStreams({ ...config.streams, lifetimes })
  const oidc = config.oidc && createOidc(config.oidc)

  return {
    tokens,
    lifetimes,
    streams,
    async authenticate(bearer: string): Promise<Caller> {
      return oidc && bearer.split('.').length === 3 ? await oidc(bearer) : await tokens.check(bearer)
    },
    /** Drops the tokens that were minted through these sessions; without sessions, any token may be gone. */
    forgetTokens(session_ids?: ReadonlySet<string>): void {
      tokens.forget(session_ids)
      // The database reports the tokens that end with a session.
      if (session_ids) return
      endedAmong(store.db, lifetimes.watched()).then(
        // Delayed, so that a call that deletes the project of its own token still receives its result.
        (ended) => void setTimeout(() => lifetimes.revoke(ended), revocationDelayMs).unref(),
        (error: unknown) => log.warn('failed to look for revoked tokens', { error }),
      )
    },
  }
}

/** Tokens that are revoked elsewhere stop working here, and their streams end. */
export const followRevocations = (
  store: Store,
  { tokens, lifetimes, forgetTokens }: Auth,
  managers: Managers,
) =>
  onTokenChange(store, (token_id) => {
    managers.identities.forget()
    if (token_id === undefined) return forgetTokens()
    tokens.forget()
    lifetimes.revoke([token_id])
  })
