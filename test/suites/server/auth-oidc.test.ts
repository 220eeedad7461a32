// Access tokens of an OpenID Connect issuer that this test runs.
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { dial, keyOf, socketOf } from '../../fixtures/droid-socket.ts'
import { query } from '../../harness/database.ts'
import { resultIn, rpc, send } from '../../harness/rpc.ts'
import { bootServer, type TestServer } from '../../harness/server.ts'
import { until } from '../../harness/wait.ts'

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

it('the api_scope of a session that was spawned with it ends with it, and the same subject renews it', {
  timeout: 90_000,
}, async () => {
  const as = async (token: string, tool: string, args: object) => {
    const result = resultIn(await rpc(server.url, token, 'tools/call', { name: tool, arguments: args }))
    expect(result.isError, JSON.stringify(result.structuredContent)).toBe(false)
    return result.structuredContent as Record<string, string>
  }
  const made = { action: 'create', name: 'of an issuer', network: 'none' }
  const project_id = (await as(server.admin_token, 'project', made)).project_id!
  await as(server.admin_token, 'container', { action: 'start', project_id })
  const soon = () => Math.floor(Date.now() / 1000) + 6
  const brief = await access({ scope: 'admin', sub: 'cy', exp: soon() })
  const api_scope = `project:${project_id}`
  const spawning = { action: 'spawn', project_id, prompt: 'sleep 900', api_scope }
  const session_id = (await as(brief, 'session', spawning)).session_id!
  const dialled = await dial(socketOf({ server }, project_id))
  const api_key = keyOf({ server }, session_id)
  const list = async () =>
    (await dialled.ask('oubliette_call_tool', { api_key, tool: 'project_list', arguments: {} })).error?.code
  expect(await list()).toBeUndefined()
  await until(async () => (await list()) === -32002, { what: 'its scope is gone', deadline_ms: 20_000 })
  // It is still a session: its callers' tools are its own.
  expect((await dialled.ask('caller_tools', { api_key })).error).toBeUndefined()
  const message = { action: 'message', session_id, message: 'true' }
  await as(await access({ scope: 'admin', sub: 'somebody else' }), 'session', message)
  expect(await list()).toBe(-32002)
  await as(await access({ scope: 'admin', sub: 'cy' }), 'session', message)
  await until(async () => (await list()) === undefined, { what: 'its scope is back' })
  dialled.close()
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

it('an access token is never written to the log', async () => {
  const token = await access({ aud: 'https://somebody.else' })
  await list(token)
  expect(server.log()).not.toContain(token.split('.')[2])
})
