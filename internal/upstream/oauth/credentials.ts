// Authorization of one upstream by OAuth 2.1, with the SDK's client: discovery, PKCE, registration, refresh. Tokens are renewed
// without anybody's help, one renewal at a time, because a refresh token may be used once. A consent is begun on request only:
// calls that need one fail and say so.
import { randomBytes, timingSafeEqual } from 'node:crypto'
import {
  type AuthProvider,
  auth,
  computeScopeUnion,
  extractWWWAuthenticateParams,
  type OAuthClientProvider,
  OAuthError,
  refreshAuthorization,
  UnauthorizedError,
} from '@modelcontextprotocol/client'
import { Fault } from '../../fault.ts'
import { authorizationOf } from '../transport/http-fetch.ts'
import type { CredentialState, OAuthSettings } from '../upstream.ts'
import { createStored, type Stored } from './stored.ts'

/** Renewed so long before it expires. */
const renewMs = 30_000
/** Tokens without a refresh token are reported so long before they expire. */
const expiringMs = 10 * 60_000
const longestTimerMs = 2 ** 31 - 1

export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>

export type Credentials = {
  provider: AuthProvider
  state(): CredentialState
  load(): Promise<void>
  authorize(): Promise<{ url: string; state: string } | undefined>
  finish(answer: { code: string; state: string; iss?: string }): Promise<void>
  /** The upstream refuses a token that is valid, or wants more than it grants. */
  refuse(scope: string | undefined): Promise<void>
  close(): void
}

export function createCredentials(
  name: string,
  server_url: string,
  settings: OAuthSettings,
  fetch: Fetch,
  onChanged: () => void,
): Credentials {
  const isInteractive = settings.grant === 'authorization_code'
  let renewing: Promise<void> | undefined
  let timer: NodeJS.Timeout | undefined
  let told: CredentialState | undefined

  const stored = createStored(settings.store, () => {
    const state = stateNow()
    schedule()
    if (state === told) return
    told = state
    onChanged()
  })

  function stateNow(): CredentialState {
    const kept = stored.current()
    if (!kept) return 'none'
    if (kept.refused) return kept.refused
    if (!kept.tokens) return isInteractive ? 'needs_reauth' : 'ok'
    const { expires_at, refresh_token } = kept.tokens
    if (expires_at === undefined || refresh_token !== undefined || !isInteractive) return 'ok'
    const left = expires_at - Date.now()
    return left <= 0 ? 'needs_reauth' : left <= expiringMs ? 'expiring' : 'ok'
  }

  /** Wakes up when the state changes by time alone. */
  function schedule(): void {
    clearTimeout(timer)
    const { expires_at, refresh_token } = stored.current()?.tokens ?? {}
    if (expires_at === undefined || refresh_token !== undefined || !isInteractive) return
    const next = [expires_at - expiringMs, expires_at].find((at) => at > Date.now())
    if (next === undefined) return
    timer = setTimeout(
      () => {
        schedule()
        const state = stateNow()
        if (state === told) return
        told = state
        onChanged()
      },
      Math.min(longestTimerMs, next - Date.now() + 1),
    ).unref()
  }

  /** The SDK's view. `begun` collects a consent; without it, none is begun. */
  function providerFor(begun?: { url?: URL; state: string; verifier?: string }): OAuthClientProvider {
    const { client_id, client_secret, redirect_url, scope } = settings
    return {
      redirectUrl: isInteractive ? redirect_url : undefined,
      ...(settings.client_metadata_url ? { clientMetadataUrl: settings.client_metadata_url } : {}),
      clientMetadata: {
        client_name: 'Oubliette',
        redirect_uris: isInteractive ? [redirect_url] : [],
        grant_types: isInteractive ? ['authorization_code', 'refresh_token'] : ['client_credentials'],
        ...(isInteractive ? { response_types: ['code'] } : {}),
        token_endpoint_auth_method: client_secret ? 'client_secret_basic' : 'none',
        ...(scope === undefined ? {} : { scope }),
      },
      state: () => begun?.state ?? '',
      clientInformation: async (context) => {
        const { client } = await stored.load()
        if (client_id === undefined) return client
        // The authorization server that it is used with first: it is sent to no other.
        const issuer = client?.issuer ?? context?.issuer
        if (client?.issuer === undefined && issuer !== undefined)
          await stored.change({ client: { client_id, issuer } })
        return {
          client_id,
          ...(client_secret ? { client_secret: client_secret.reveal() } : {}),
          ...(issuer === undefined ? {} : { issuer }),
        }
      },
      saveClientInformation: async (client) => {
        if (client_id !== undefined && client.client_id !== client_id)
          throw new Fault('forbidden', `upstream "${name}" names another authorization server than before`, {
            hint: 'remove and add the upstream if this is intended',
          })
        // The configured secret stays where it is configured.
        await stored.change({
          client: client_id === undefined ? client : { client_id, issuer: client.issuer },
        })
      },
      tokens: async () => (await stored.load()).tokens,
      saveTokens,
      redirectToAuthorization: (url) => {
        if (begun) begun.url = url
      },
      saveCodeVerifier: (verifier) => {
        if (begun) begun.verifier = verifier
      },
      codeVerifier: async () => {
        const { pending } = await stored.load()
        return pending?.verifier ?? begun?.verifier ?? ''
      },
      invalidateCredentials: async (what) => {
        if (what === 'client' || what === 'all') await stored.change({ client: undefined })
        if (what === 'tokens' || what === 'all') await stored.change({ tokens: undefined })
        if (what === 'discovery' || what === 'all') await stored.change({ discovery: undefined })
      },
      ...(isInteractive
        ? {}
        : {
            prepareTokenRequest: (wanted?: string) =>
              new URLSearchParams({
                grant_type: 'client_credentials',
                ...((wanted ?? scope) ? { scope: (wanted ?? scope)! } : {}),
              }),
          }),
      saveDiscoveryState: (discovery) => stored.change({ discovery }),
      discoveryState: async () => (await stored.load()).discovery,
      saveResourceUrl: (resource) => stored.change({ resource }),
    }
  }

  async function saveTokens(tokens: NonNullable<Stored['tokens']>): Promise<void> {
    const expires_at = tokens.expires_in === undefined ? undefined : Date.now() + tokens.expires_in * 1000
    await stored.change({
      tokens: { ...tokens, ...(expires_at === undefined ? {} : { expires_at }) },
      refused: undefined,
    })
  }

  const authOptions = ({ challenge }: Stored) => ({
    serverUrl: server_url,
    fetchFn: fetch,
    ...(challenge?.resource_metadata_url
      ? { resourceMetadataUrl: new URL(challenge.resource_metadata_url) }
      : {}),
    ...((challenge?.scope ?? settings.scope) ? { scope: (challenge?.scope ?? settings.scope)! } : {}),
  })

  /** Throws if new tokens cannot be had without a consent, or not now. */
  async function renew(): Promise<void> {
    const kept = await stored.load()
    if (!isInteractive) {
      try {
        await auth(providerFor(), authOptions(kept))
      } catch (error) {
        if (!isRefusal(error)) throw error
        await stored.change({ refused: 'revoked', tokens: undefined })
        throw new UnauthorizedError()
      }
      return
    }
    const { tokens, discovery, resource } = kept
    const client = await providerFor().clientInformation()
    if (!tokens?.refresh_token || !discovery || !client) {
      await stored.change({ refused: kept.refused ?? (tokens ? 'revoked' : 'needs_reauth') })
      throw new UnauthorizedError()
    }
    try {
      const fresh = await refreshAuthorization(discovery.authorizationServerUrl, {
        ...(discovery.authorizationServerMetadata ? { metadata: discovery.authorizationServerMetadata } : {}),
        clientInformation: client,
        refreshToken: tokens.refresh_token,
        ...(resource === undefined ? {} : { resource: new URL(resource) }),
        fetchFn: fetch,
      })
      await saveTokens({ ...fresh, issuer: tokens.issuer })
    } catch (error) {
      // An authorization server that is down is asked again; one that refuses is not.
      if (!isRefusal(error)) throw error
      await stored.change({ refused: 'revoked', tokens: undefined })
      throw new UnauthorizedError()
    }
  }

  function renewOnce(): Promise<void> {
    renewing ??= renew().finally(() => {
      renewing = undefined
    })
    return renewing
  }

  return {
    provider: {
      async token() {
        const { tokens, refused } = await stored.load()
        if (refused) throw new UnauthorizedError()
        const left = (tokens?.expires_at ?? Number.POSITIVE_INFINITY) - Date.now()
        if (left <= renewMs && (tokens?.refresh_token || !isInteractive)) await renewOnce()
        return (await stored.load()).tokens?.access_token
      },
      async onUnauthorized({ response }) {
        const { tokens } = await stored.load()
        const used = authorizationOf.get(response)
        // Refused with the token before this one: the request is repeated.
        if (tokens && used !== undefined && used !== `Bearer ${tokens.access_token}`) return
        const { resourceMetadataUrl, scope } = extractWWWAuthenticateParams(response)
        const challenge = {
          ...(resourceMetadataUrl ? { resource_metadata_url: resourceMetadataUrl.href } : {}),
          ...(scope ? { scope } : {}),
        }
        await stored.change({ challenge })
        await renewOnce()
      },
    },
    state: stateNow,
    load: async () => void (await stored.load()),

    async authorize() {
      const kept = await stored.load()
      const state = stateNow()
      if (kept.tokens && state === 'ok' && (kept.tokens.expires_at ?? Number.POSITIVE_INFINITY) > Date.now())
        return undefined
      const begun: { url?: URL; state: string; verifier?: string } = {
        state: randomBytes(32).toString('base64url'),
      }
      const outcome = await auth(providerFor(begun), authOptions(kept)).catch((error: unknown) => {
        throw authorizationFault(name, error)
      })
      if (outcome === 'AUTHORIZED') {
        await stored.change({ refused: undefined })
        return undefined
      }
      if (!begun.url || !/^https?:$/.test(begun.url.protocol) || begun.verifier === undefined)
        throw new Fault('unavailable', `upstream "${name}" has no usable authorization page`)
      await stored.change({ pending: { state: begun.state, verifier: begun.verifier } })
      return { url: begun.url.href, state: begun.state }
    },

    async finish({ code, state, iss }) {
      const kept = await stored.load()
      if (!kept.pending || !isSame(kept.pending.state, state))
        throw new Fault(
          'invalid',
          `the authorization of upstream "${name}" was not begun here, or has ended`,
          {
            hint: 'begin it again with mcp_server auth',
          },
        )
      const provider = providerFor({ state, verifier: kept.pending.verifier ?? '' })
      // A code and its state are used once.
      const verifier = kept.pending.verifier ?? ''
      await stored.change({ pending: undefined })
      await auth(
        { ...provider, codeVerifier: () => verifier },
        { ...authOptions(kept), authorizationCode: code, ...(iss === undefined ? {} : { iss }) },
      ).catch((error: unknown) => {
        throw authorizationFault(name, error)
      })
    },

    async refuse(scope) {
      const { challenge, refused } = await stored.load()
      if (refused) return
      const wanted = computeScopeUnion(challenge?.scope ?? settings.scope, scope)
      await stored.change({
        refused: 'needs_reauth',
        challenge: { ...challenge, ...(wanted === undefined ? {} : { scope: wanted }) },
      })
    },

    close: () => clearTimeout(timer),
  }
}

const refusals = new Set([
  'invalid_grant',
  'invalid_client',
  'unauthorized_client',
  'access_denied',
  'invalid_scope',
])
const isRefusal = (error: unknown): boolean => error instanceof OAuthError && refusals.has(error.code)

function isSame(a: string, b: string): boolean {
  const [first, second] = [Buffer.from(a), Buffer.from(b)]
  return first.length === second.length && timingSafeEqual(first, second)
}

function authorizationFault(name: string, error: unknown): Fault {
  if (error instanceof Fault) return error
  const reason = error instanceof Error ? error.message.slice(0, 300) : 'no reason was given'
  return new Fault('unavailable', `failed to authorize upstream "${name}": ${reason}`, { cause: error })
}
