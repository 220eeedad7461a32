// The HTTP room and both protocol eras in front of a stub door, used by the real clients.
import { connect as dial } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Bench, bench, eras } from '../../fixtures/mcp/clients.ts'
import { until } from '../../harness/wait.ts'

let on: Bench
beforeEach(async () => {
  on = await bench()
})
afterEach(() => on.close())

async function again(options: Parameters<typeof bench>[0]) {
  await on.close()
  on = await bench(options)
}

describe.each(eras)('%s', (era) => {
  test('lists and calls tools as the caller of its token', async () => {
    const client = await on.client(era)
    const { tools } = await client.listTools()
    expect(tools.map((tool) => tool.name)).toEqual(['echo', 'steps', 'hang', 'slow', 'broken'])
    const result = await client.callTool({ name: 'echo', arguments: { a: 1 } })
    expect(result).toMatchObject({
      isError: false,
      structuredContent: { caller: 'tester', args: { a: 1 }, request_id: expect.stringMatching(/^req_/) },
    })
  })
  test('is listed less with a token of a project', async () => {
    const narrow = on.server.token('narrow', 'project:00000000-0000-4000-8000-000000000000')
    const { tools } = await (await on.client(era, narrow)).listTools()
    expect(tools.map((tool) => tool.name)).toEqual(['echo'])
  })
  test('receives a protocol error for an unknown tool', async () => {
    const client = await on.client(era)
    await expect(client.callTool({ name: 'test_simple_text' })).rejects.toMatchObject({ code: -32602 })
    expect(on.door.begun).toEqual([])
  })
  test('never sees the text of a bug', async () => {
    const result = await (await on.client(era)).callTool({ name: 'broken' })
    expect(result).toMatchObject({ isError: true, structuredContent: { error: { kind: 'internal' } } })
    expect(JSON.stringify(result)).not.toContain('secret detail')
  })
  test('gets progress', async () => {
    const seen: number[] = []
    const onprogress = ({ progress }: { progress: number }) => seen.push(progress)
    const client = await on.client(era)
    // The older line takes the options third, after a result schema.
    if (era === '1.x client')
      await Reflect.apply(client.callTool, client, [{ name: 'steps' }, undefined, { onprogress }])
    else await client.callTool({ name: 'steps' }, { onprogress })
    expect(seen).toEqual([1, 2, 3])
  })
  test('cancels a running call', async () => {
    const client = await on.client(era)
    const cancel = new AbortController()
    const options = { signal: cancel.signal }
    const call: Promise<unknown> =
      era === '1.x client'
        ? Reflect.apply(client.callTool, client, [{ name: 'hang' }, undefined, options])
        : client.callTool({ name: 'hang' }, options)
    const refused = expect(call).rejects.toThrow()
    await until(() => on.door.begun.length, { what: 'the call runs' })
    cancel.abort()
    await refused
    await until(() => on.door.aborted.includes('hang'), { what: 'the call is cancelled' })
    expect(await client.callTool({ name: 'echo' })).toMatchObject({ isError: false })
  })
  test('is refused at the next request when its token is no longer valid', async () => {
    const client = await on.client(era)
    await client.listTools()
    on.server.forget()
    await expect(client.callTool({ name: 'echo' })).rejects.toThrow()
    expect(on.door.begun).toEqual([])
  })
})

describe('authentication', () => {
  test.each([
    ['without a token', {}, false],
    ['with another scheme', { authorization: 'Basic abc' }, true],
    ['with an unknown token', { authorization: `Bearer oub_${'0'.repeat(64)}` }, true],
  ])('a request %s gets 401 with a challenge', async (_name, headers, presented) => {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const answer = await fetch(on.endpoint, { method, headers: headers as Record<string, string> })
      expect(answer.status).toBe(401)
      const challenge = answer.headers.get('www-authenticate') ?? ''
      expect(challenge).toMatch(/^Bearer realm="oubliette"/)
      expect(challenge.includes('error="invalid_token"')).toBe(presented)
      expect(answer.headers.get('x-request-id')).toMatch(/^req_/)
      expect(await answer.json()).toMatchObject({
        error: { kind: 'unauthenticated', message: expect.any(String), id: expect.stringMatching(/^err_/) },
      })
    }
  })
  test('with an issuer, the challenge names the metadata, and the metadata names the issuer', async () => {
    const oidc = { issuer: 'https://id.example', audience: 'https://oub.example/mcp', scope_claim: 'scope' }
    await again({ config: { oidc } })
    const refused = await fetch(on.endpoint, { method: 'POST' })
    const where = /resource_metadata="([^"]+)"/.exec(refused.headers.get('www-authenticate') ?? '')?.[1] ?? ''
    expect(where).toBe('https://oub.example/.well-known/oauth-protected-resource/mcp')
    const metadata = await fetch(new URL(new URL(where).pathname, on.endpoint))
    expect(await metadata.json()).toMatchObject({
      resource: 'https://oub.example/mcp',
      authorization_servers: ['https://id.example'],
    })
  })
  test('too many failures or requests get 429 with Retry-After', async () => {
    const spent = { take: () => ({ ok: false as const, retry_after_seconds: 2.5 }) }
    await again({ rate: { failures: spent, requests: spent } })
    for (const secret of [on.token, 'oub_bad']) {
      const answer = await on.post({}, { authorization: `Bearer ${secret}` })
      expect(answer.status).toBe(429)
      expect(answer.headers.get('retry-after')).toBe('3')
      expect(await answer.json()).toMatchObject({ error: { kind: 'exhausted' } })
    }
  })
})

describe('what is refused before anything is asked', () => {
  test.each([
    ['a foreign Host', { host: 'evil.example' }],
    ['a Host that only begins like ours', { host: '127.0.0.1.evil.example' }],
    ['a foreign Origin', { origin: 'http://evil.example' }],
    ['a null Origin', { origin: 'null' }],
  ])('%s is forbidden on every route', async (_name, headers) => {
    for (const path of ['/healthz', '/readyz', '/mcp', '/nothing']) {
      const answer = await on.raw(path, headers as Record<string, string>)
      expect(answer.status).toBe(403)
      expect(JSON.parse(answer.text)).toMatchObject({ error: { kind: 'forbidden' } })
    }
  })
  test('our own origin passes, and an allowed one may read the answer', async () => {
    await again({ config: { allowed_origins: ['https://app.example'] } })
    expect((await on.raw('/healthz', { origin: on.server.url })).status).toBe(200)
    const allowed = await on.raw('/healthz', { origin: 'https://app.example' })
    expect(allowed.headers.get('access-control-allow-origin')).toBe('https://app.example')
  })
  test('a body over the limit, announced or not, is 413 or cut off', async () => {
    const announced = await on.post('x'.repeat(1024 * 1024 + 1))
    expect(announced.status).toBe(413)
    expect(await announced.json()).toMatchObject({
      error: { kind: 'invalid', message: expect.stringContaining('larger than 1048576') },
    })
    async function* chunks() {
      for (let sent = 0; sent < 40; sent++) yield Buffer.alloc(64 * 1024, 'x')
    }
    const init = { method: 'POST', headers: on.authorized(), body: chunks(), duplex: 'half' } as const
    const outcome = await fetch(on.endpoint, init).then(
      (answer) => answer.status,
      () => 'cut off',
    )
    expect([413, 'cut off']).toContain(outcome)
    expect(on.door.begun).toEqual([])
  })
  test.each([
    ['broken JSON', '{"a":'],
    ['an empty body', ''],
    ['JSON that is too deep', '['.repeat(200_000)],
    ['JSON that is no message', '42'],
    ['a batch of nothing', '[]'],
  ])('%s is a protocol error, not a failure', async (_name, body) => {
    const answer = await on.post(body)
    expect(answer.status).toBe(400)
    expect(await answer.json()).toMatchObject({ jsonrpc: '2.0', error: { code: expect.any(Number) } })
  })
  test('another content type is 415', async () => {
    expect((await on.post('{}', { 'content-type': 'text/plain' })).status).toBe(415)
  })
  test.each([
    ['GET', '/nothing', 404, 'not_found'],
    ['PUT', '/mcp', 405, 'invalid'],
    ['POST', '/healthz', 405, 'invalid'],
  ])('%s %s is %i', async (method, path, status, kind) => {
    const answer = await fetch(new URL(path, on.endpoint), { method })
    expect(answer.status).toBe(status)
    expect(await answer.json()).toMatchObject({ error: { kind } })
  })
  test('what is not HTTP gets a sentence', async () => {
    const socket = dial(Number(on.endpoint.port), on.endpoint.hostname, () =>
      socket.write('nonsense\r\n\r\n'),
    )
    let text = ''
    for await (const chunk of socket) text += chunk
    expect(text).toMatch(/^HTTP\/1\.1 400 /)
    expect(text).toContain('"kind":"invalid"')
  })
})

test('readiness names what is missing, and not why', async () => {
  expect((await fetch(new URL('/readyz', on.endpoint))).status).toBe(200)
  const down = () => Promise.reject(new Error('secret host name'))
  await again({ readiness: { database: async () => {}, engine: down, relay: down } })
  const answer = await fetch(new URL('/readyz', on.endpoint))
  expect(answer.status).toBe(503)
  const text = await answer.text()
  expect(JSON.parse(text)).toMatchObject({
    error: { kind: 'unavailable', message: 'not ready: engine, relay' },
  })
  expect(text).not.toContain('secret')
})
