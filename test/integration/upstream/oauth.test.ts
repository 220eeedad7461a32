// Authorization of an upstream: consent, unattended renewal, revocation, client credentials, and what others must not get.
import { afterAll, describe, expect, it } from 'vitest'
import { createLog, Secret } from '../../../internal/log.ts'
import type { OAuthSettings, OAuthState, Upstreams } from '../../../internal/upstream/upstream.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import { type OAuthServer, startOAuthServer } from '../../fixtures/upstream/oauth-server.ts'
import { options, textOf } from '../../fixtures/upstream/options.ts'
import { specOf } from '../../fixtures/upstream/servers.ts'
import { until } from '../../harness/wait.ts'

const closing: (() => Promise<void>)[] = []
afterAll(async () => {
  for (const close of closing) await close()
})

function newUpstreams(): Upstreams {
  const upstreams = createUpstreams({ log: createLog({ write: () => undefined }), version: '0.0.0' })
  closing.push(() => upstreams.close())
  return upstreams
}

type Rig = {
  server: OAuthServer
  kept: { state: OAuthState | undefined }
  id: string
  upstreams: Upstreams
  open(): Upstreams
}

async function rig(
  more: Parameters<typeof startOAuthServer>[0] = {},
  settings: Partial<OAuthSettings> = {},
): Promise<Rig> {
  const server = await startOAuthServer(more)
  closing.push(() => server.stop())
  const kept: Rig['kept'] = { state: undefined }
  const spec = specOf({
    kind: 'http',
    url: server.url,
    headers: { 'x-api-key': new Secret('key-of-the-upstream') },
    fetch,
    oauth: {
      redirect_url: 'http://127.0.0.1:9/oauth/callback',
      grant: 'authorization_code',
      store: {
        read: async () => structuredClone(kept.state),
        write: async (state) => {
          // As it is stored: by its JSON.
          kept.state = JSON.parse(JSON.stringify(state)) as OAuthState
        },
      },
      ...settings,
    },
  })
  const open = () => {
    const upstreams = newUpstreams()
    upstreams.configure(spec)
    return upstreams
  }
  return { server, kept, id: spec.id, upstreams: open(), open }
}

const echo = async (upstreams: Upstreams, id: string) =>
  textOf(await upstreams.call(id, { tool: 'echo', arguments: { message: 'hi' } }, options()))

async function authorized(more: Parameters<typeof startOAuthServer>[0] = {}): Promise<Rig> {
  const made = await rig(more)
  const begun = await made.upstreams.authorize(made.id)
  await made.upstreams.finishAuthorization(made.id, made.server.consent(begun!.url))
  return made
}

describe('consent', () => {
  it('is asked for, not begun, by a call; it is given once, and then calls work', async () => {
    const { upstreams, id, server } = await rig()
    await expect(echo(upstreams, id)).rejects.toMatchObject({
      kind: 'unavailable',
      needs_authorization: true,
      outcome: 'not_sent',
    })
    expect(upstreams.status(id).credentials).toBe('needs_reauth')
    const begun = await upstreams.authorize(id)
    const page = new URL(begun!.url)
    expect(page.searchParams.get('code_challenge_method')).toBe('S256')
    expect(page.searchParams.get('state')).toBe(begun!.state)
    await upstreams.finishAuthorization(id, server.consent(begun!.url))
    expect(upstreams.status(id).credentials).toBe('ok')
    expect(await echo(upstreams, id)).toBe('hi')
    expect(await upstreams.authorize(id)).toBeUndefined()
  })

  it('survives the death of the server in between', async () => {
    const { upstreams, id, server, open } = await rig()
    const begun = await upstreams.authorize(id)
    await upstreams.close()
    const next = open()
    await next.finishAuthorization(id, server.consent(begun!.url))
    expect(await echo(next, id)).toBe('hi')
  })

  it.each([
    [
      'another state',
      (answer: { state: string }) => ({ ...answer, state: 'x'.repeat(answer.state.length) }),
      'invalid',
    ],
    ['another issuer', (answer: object) => ({ ...answer, iss: 'https://evil.example' }), 'unavailable'],
    ['no issuer', ({ iss, ...answer }: { iss?: string }) => answer, 'unavailable'],
  ])('is refused with %s', async (_, change, kind) => {
    const { upstreams, id, server } = await rig()
    const begun = await upstreams.authorize(id)
    const answer = change(server.consent(begun!.url) as never) as { code: string; state: string }
    await expect(upstreams.finishAuthorization(id, answer)).rejects.toMatchObject({ kind })
    expect(upstreams.status(id).credentials).toBe('needs_reauth')
    expect(server.requests.filter(({ path }) => path === '/token')).toHaveLength(0)
  })

  it('cannot be used twice', async () => {
    const { upstreams, id, server } = await rig()
    const begun = await upstreams.authorize(id)
    const answer = server.consent(begun!.url)
    await upstreams.finishAuthorization(id, answer)
    await expect(upstreams.finishAuthorization(id, answer)).rejects.toMatchObject({ kind: 'invalid' })
  })

  it('is not disturbed by calls that fail meanwhile', async () => {
    const { upstreams, id, server } = await rig()
    const begun = await upstreams.authorize(id)
    await expect(echo(upstreams, id)).rejects.toMatchObject({ needs_authorization: true })
    await upstreams.finishAuthorization(id, server.consent(begun!.url))
    expect(await echo(upstreams, id)).toBe('hi')
  })
})

describe('renewal', () => {
  it('happens once for many calls that are refused at the same time', async () => {
    const { upstreams, id, server } = await authorized()
    expect(await echo(upstreams, id)).toBe('hi')
    server.expireAccess()
    const answers = await Promise.all(Array.from({ length: 8 }, () => echo(upstreams, id)))
    expect(answers).toEqual(Array(8).fill('hi'))
    expect(server.state.refreshes).toBe(1)
    expect(upstreams.status(id).credentials).toBe('ok')
  })

  it('happens before a token expires', async () => {
    const { upstreams, id, server } = await authorized({ expires_in: 10 })
    expect(await echo(upstreams, id)).toBe('hi')
    expect(server.state.refreshes).toBeGreaterThan(0)
  })

  it('that fails because the authorization server is down is not a revocation', async () => {
    const { upstreams, id, server } = await authorized()
    server.expireAccess()
    server.state.failing = true
    await expect(echo(upstreams, id)).rejects.toMatchObject({ kind: 'unavailable' })
    expect(upstreams.status(id).credentials).toBe('ok')
    server.state.failing = false
    await upstreams.restart(id)
    expect(await echo(upstreams, id)).toBe('hi')
  })
})

describe('what is visible', () => {
  it('a revoked authorization, as news, and a new consent ends it', async () => {
    const { upstreams, id, server } = await authorized()
    expect(await echo(upstreams, id)).toBe('hi')
    const seen: string[] = []
    upstreams.subscribe(({ status }) => void seen.push(status.credentials))
    server.revoke()
    await expect(echo(upstreams, id)).rejects.toMatchObject({ needs_authorization: true })
    expect(upstreams.status(id).credentials).toBe('revoked')
    expect(seen).toContain('revoked')
    const before = server.requests.length
    await expect(echo(upstreams, id)).rejects.toMatchObject({ needs_authorization: true })
    expect(server.requests).toHaveLength(before)
    const begun = await upstreams.authorize(id)
    await upstreams.finishAuthorization(id, server.consent(begun!.url))
    expect(await echo(upstreams, id)).toBe('hi')
  })

  it('a token without a refresh token that is about to expire, and that has expired', async () => {
    const { upstreams, id } = await authorized({ refresh: false, expires_in: 2 })
    expect(upstreams.status(id).credentials).toBe('expiring')
    await until(() => upstreams.status(id).credentials === 'needs_reauth', { what: 'it has expired' })
  })
})

describe('secrets', () => {
  it('headers of the upstream do not go to its authorization server', async () => {
    const { upstreams, id, server } = await authorized()
    await echo(upstreams, id)
    const others = server.requests.filter(({ path }) => path !== '/mcp')
    expect(others.length).toBeGreaterThan(3)
    expect(others.filter(({ headers }) => 'x-api-key' in headers)).toEqual([])
    const own = server.requests.filter(({ path }) => path === '/mcp')
    expect(own.every(({ headers }) => headers['x-api-key'] === 'key-of-the-upstream')).toBe(true)
  })

  it('a configured client secret is not stored, and client credentials need no consent', async () => {
    const confidential: [string, string] = ['service', 'very-secret']
    const settings = {
      grant: 'client_credentials' as const,
      client_id: 'service',
      client_secret: new Secret('very-secret'),
    }
    const { upstreams, id, kept, server } = await rig({ confidential }, settings)
    expect(await echo(upstreams, id)).toBe('hi')
    expect(upstreams.status(id).credentials).toBe('ok')
    server.expireAccess()
    expect(await echo(upstreams, id)).toBe('hi')
    expect(JSON.stringify(kept.state)).not.toContain('very-secret')
    const wrong = await rig({ confidential }, { ...settings, client_secret: new Secret('guess') })
    await expect(echo(wrong.upstreams, wrong.id)).rejects.toMatchObject({ kind: 'unavailable' })
    expect(wrong.upstreams.status(wrong.id).credentials).toBe('revoked')
  })
})
