// The part of LinkedIn's HTTP API that the tools use: the OAuth authorization code flow, the profile of the member, and posts.
// https://learn.microsoft.com/linkedin/shared/authentication/authorization-code-flow
// https://learn.microsoft.com/linkedin/marketing/community-management/shares/posts-api
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'

export type Settings = {
  client_id: string
  client_secret: string
  redirect_uri: string
  scope: string
  /** Year and month of the API, `YYYYMM`. */
  api_version: string
  auth_url: string
  api_url: string
  /** Keeps the token and the state of an open authorization when the process ends; without it both are lost. */
  token_file: string | undefined
  access_token: string | undefined
}

/** Throws an error that names every variable that is missing. */
export function settingsOf(env: NodeJS.ProcessEnv): Settings {
  const required = ['LINKEDIN_CLIENT_ID', 'LINKEDIN_CLIENT_SECRET', 'LINKEDIN_REDIRECT_URI']
  const missing = required.filter((name) => !env[name])
  if (missing.length > 0) throw new Error(`missing environment variables: ${missing.join(', ')}`)
  return {
    client_id: env.LINKEDIN_CLIENT_ID!,
    client_secret: env.LINKEDIN_CLIENT_SECRET!,
    redirect_uri: env.LINKEDIN_REDIRECT_URI!,
    scope: env.LINKEDIN_SCOPE ?? 'openid profile email w_member_social',
    api_version: env.LINKEDIN_API_VERSION ?? '202609',
    auth_url: env.LINKEDIN_AUTH_URL ?? 'https://www.linkedin.com',
    api_url: env.LINKEDIN_API_URL ?? 'https://api.linkedin.com',
    token_file: env.LINKEDIN_TOKEN_FILE,
    access_token: env.LINKEDIN_ACCESS_TOKEN,
  }
}

type Stored = { access_token?: string; expires_at?: number; state?: string }
export type Profile = { sub: string; name?: string; email?: string; picture?: string; locale?: unknown }

const timeoutMs = 20_000
const unauthorized =
  'not authorized: call linkedin_generate_auth_url, let the user open the URL, then linkedin_exchange_code'

/** Reserved characters of LinkedIn's text format; "#word" is a hashtag and stays. */
export const escapeText = (text: string): string =>
  text.replace(/[\\|{}@[\]()<>*_~]|#(?![\p{L}\p{N}])/gu, (character) => `\\${character}`)

export function createLinkedIn(settings: Settings) {
  const { token_file } = settings
  let stored: Stored = settings.access_token ? { access_token: settings.access_token } : read()

  function read(): Stored {
    if (!token_file) return {}
    try {
      return JSON.parse(readFileSync(token_file, 'utf8')) as Stored
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {}
      throw error
    }
  }
  function store(changed: Stored): void {
    stored = changed
    if (!token_file) return
    // A crash in the middle leaves the old file.
    writeFileSync(`${token_file}.new`, JSON.stringify(stored), { mode: 0o600 })
    renameSync(`${token_file}.new`, token_file)
  }

  function tokenOf(): string {
    const { access_token, expires_at } = stored
    if (!access_token) throw new Error(unauthorized)
    if (expires_at !== undefined && expires_at <= Date.now())
      throw new Error(`the token has expired; ${unauthorized}`)
    return access_token
  }

  async function ask(url: string, init: RequestInit): Promise<Response> {
    const response = await fetch(url, { ...init, redirect: 'error', signal: AbortSignal.timeout(timeoutMs) })
    if (response.ok) return response
    const text = (await response.text()).slice(0, 500)
    const hint = response.status === 401 ? `; ${unauthorized}` : ''
    throw new Error(`LinkedIn answered ${response.status}: ${text}${hint}`)
  }
  const asMember = (path: string, init: RequestInit = {}) =>
    ask(`${settings.api_url}${path}`, {
      ...init,
      headers: { ...init.headers, authorization: `Bearer ${tokenOf()}` },
    })

  async function profile(): Promise<Profile> {
    return (await (await asMember('/v2/userinfo')).json()) as Profile
  }

  return {
    /** The page where the member consents. The state in it is accepted once. */
    authorizationUrl(): string {
      const state = randomBytes(24).toString('base64url')
      store({ ...stored, state })
      const url = new URL('/oauth/v2/authorization', settings.auth_url)
      url.search = new URLSearchParams({
        response_type: 'code',
        client_id: settings.client_id,
        redirect_uri: settings.redirect_uri,
        state,
        scope: settings.scope,
      }).toString()
      return url.href
    },
    /** The token stays in this process; the caller is only told how long it is valid. */
    async exchange(code: string, state: string): Promise<{ expires_in: number; scope: string }> {
      const [given, expected] = [Buffer.from(state), Buffer.from(stored.state ?? '')]
      if (expected.length === 0 || given.length !== expected.length || !timingSafeEqual(given, expected))
        throw new Error(
          'the state is not the one of the last authorization URL; call linkedin_generate_auth_url',
        )
      const { state: _, ...rest } = stored
      store(rest)
      const response = await ask(`${settings.auth_url}/oauth/v2/accessToken`, {
        method: 'POST',
        body: new URLSearchParams({
          grant_type: 'authorization_code',
          code,
          client_id: settings.client_id,
          client_secret: settings.client_secret,
          redirect_uri: settings.redirect_uri,
        }),
      })
      const { access_token, expires_in, scope } = (await response.json()) as {
        access_token: string
        expires_in: number
        scope: string
      }
      store({ access_token, expires_at: Date.now() + expires_in * 1000 })
      return { expires_in, scope }
    },
    profile,
    /** The id of the new post, `urn:li:share:…`. */
    async post(text: string, visibility: 'PUBLIC' | 'CONNECTIONS'): Promise<string> {
      const { sub } = await profile()
      const response = await asMember('/rest/posts', {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'linkedin-version': settings.api_version,
          'x-restli-protocol-version': '2.0.0',
        },
        body: JSON.stringify({
          author: `urn:li:person:${sub}`,
          commentary: escapeText(text),
          visibility,
          distribution: {
            feedDistribution: 'MAIN_FEED',
            targetEntities: [],
            thirdPartyDistributionChannels: [],
          },
          lifecycleState: 'PUBLISHED',
          isReshareDisabledByAuthor: false,
        }),
      })
      const id = response.headers.get('x-restli-id')
      if (!id) throw new Error('LinkedIn accepted the post, but did not return its id')
      return id
    },
  }
}
