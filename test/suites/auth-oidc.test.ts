// Access tokens of an OpenID Connect issuer that lives in this test.
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { resultIn, rpc, send } from '../harness/rpc.ts'
import { bootServer, type TestServer } from '../harness/server.ts'
import { query } from '../harness/sql.ts'
import { until } from '../harness/wait.ts'

const audience = 'https://oubliette.example/mcp'
const { privateKey, publicKey } = await generateKeyPair('ES256')
const foreign = await generateKeyPair('ES256')
let issuer: Server
let issuer_url: string
let server: TestServer

beforeAll(async () => {
  const keys = [{ ...(await exportJWK(publicKey)), kid: 'one', alg: 'ES256', use: 'sig' }]
  issuer = createServer((incoming, outgoing) => {
    const discovery = incoming.url === '/.well-known/openid-configuration'
    outgoing.setHeader('content-type', 'application/json')
    outgoing.end(
      JSON.stringify(discovery ? { issuer: issuer_url, jwks_uri: `${issuer_url}/keys` } : { keys }),
    )
  }).listen(0, '127.0.0.1')
  await once(issuer, 'listening')
  issuer_url = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`
  server = await bootServer({
    config: { oidc: { issuer: issuer_url, audience }, rate: { failures_per_address_per_minute: 1000 } },
  })
})
afterAll(async () => {
  await server?.stop()
  issuer?.close()
})

type Claims = { scope?: unknown; aud?: string; iss?: string; exp?: number | string; sub?: string | null }
async function access(claims: Claims = {}, key = privateKey): Promise<string> {
  const jwt = new SignJWT({ scope: claims.scope ?? 'openid admin:ro' })
    .setProtectedHeader({ alg: 'ES256', kid: 'one' })
    .setIssuer(claims.iss ?? issuer_url)
    .setAudience(claims.aud ?? audience)
    .setIssuedAt()
    .setExpirationTime(claims.exp ?? '5m')
  if (claims.sub !== null) jwt.setSubject(claims.sub ?? 'ann')
  return await jwt.sign(key)
}
const list = async (token: string) => await rpc(server.url, token, 'tools/list')

it('an access token is let in with the scope that it carries', async () => {
  const actions = async (token: string) => {
    const { tools } = resultIn(await list(token)) as { tools: { name: string }[] }
    return tools.map(({ name }) => name)
  }
  expect(await actions(await access())).not.toContain('token')
  expect(await actions(await access({ scope: ['profile', 'oubliette:admin'] }))).toContain('token')
  expect(await actions(await access({ scope: 'admin:ro admin' }))).toContain('token')
})

it('our own tokens work beside it', async () => {
  expect((await list(server.admin_token)).status).toBe(200)
})

it.each([
  ['another audience', { aud: 'https://somebody.else' }],
  ['another issuer', { iss: 'https://somebody.else' }],
  ['an expiry in the past', { exp: 1_600_000_000 }],
  ['no subject', { sub: null }],
])('%s is refused', async (_, claims: Claims) => {
  const reply = await list(await access(claims))
  expect(reply.status).toBe(401)
  expect(JSON.parse(reply.text).error.kind).toBe('unauthenticated')
  expect(reply.headers['www-authenticate']).toContain('/.well-known/oauth-protected-resource/mcp"')
})

it("another's key, no key and a changed token are refused", async () => {
  const good = await access()
  const [head, body, signature] = good.split('.') as [string, string, string]
  const none = Buffer.from('{"alg":"none"}').toString('base64url')
  const other = Buffer.from(
    JSON.stringify({ ...JSON.parse(Buffer.from(body, 'base64url').toString()), scope: 'admin' }),
  ).toString('base64url')
  const forged = [
    await access({}, foreign.privateKey),
    `${none}.${body}.`,
    `${head}.${other}.${signature}`,
    'a.b.c',
  ]
  for (const token of forged) expect((await list(token)).status, token).toBe(401)
})

it('a token without a scope of ours is forbidden', async () => {
  const reply = await list(await access({ scope: 'openid profile' }))
  expect(reply.status).toBe(403)
  expect(JSON.parse(reply.text).error.kind).toBe('forbidden')
})

it('what is called with it is audited under its subject', async () => {
  const args = { name: 'project', arguments: { action: 'list' } }
  const reply = await rpc(server.url, await access({ sub: 'ben' }), 'tools/call', args)
  expect(resultIn(reply).isError).toBe(false)
  const find = "select outcome from audit where caller_kind = 'oidc' and caller_id = 'oidc:ben'"
  const rows = async () => (await query<{ outcome: string }>(server.database_url!, find)).at(0)
  expect(await until(rows, { what: 'the row is there' })).toEqual({ outcome: 'ok' })
})

it('the protected-resource metadata names the issuer', async () => {
  for (const path of ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp']) {
    const reply = await send(server.url, { method: 'GET', path })
    expect(reply.status).toBe(200)
    expect(JSON.parse(reply.text)).toMatchObject({
      resource: audience,
      authorization_servers: [issuer_url],
      bearer_methods_supported: ['header'],
    })
  }
})

it('an access token never comes into the log', async () => {
  const token = await access({ aud: 'https://somebody.else' })
  await list(token)
  expect(server.log()).not.toContain(token.split('.')[2])
})
