// What a project's own token, a droid and a hostile server can reach through the gateway.
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { dialAs, droid } from '../../fixtures/droid-socket.ts'
import { reading, type ScriptedServer, startScripted, tool } from '../../fixtures/gateway/scripted-server.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { connect, type TestClient } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let upstream: ScriptedServer
let project_id: string
let other_id: string
let own: TestClient
let redirecting: Server
let hits = 0

const secret = 'sk-highly-secret-value-1234567890'

async function tokenOf(scope: string): Promise<TestClient> {
  const { token } = await booted.ok('token', { action: 'create', name: 'attack', scope })
  return await connect(booted.server, token)
}
async function refused(client: TestClient, args: object): Promise<Answer> {
  const { structured, is_error, text } = await client.call('mcp_server', args as Record<string, unknown>)
  if (!is_error) throw new Error(`it was no error: ${text}`)
  return structured.error as Answer
}
async function ok(client: TestClient, args: object): Promise<Answer> {
  const { structured, is_error, text } = await client.call('mcp_server', args as Record<string, unknown>)
  if (is_error) throw new Error(text)
  return structured
}

beforeAll(async () => {
  upstream = await startScripted()
  // Its own port of the loopback interface stands for a service that no project may reach.
  redirecting = createServer((request, response) => {
    hits++
    if (request.url === '/away') response.writeHead(307, { location: upstream.url }).end()
    else response.writeHead(200).end('{}')
  })
  await new Promise<void>((done) => redirecting.listen(0, '127.0.0.1', done))
  booted = await boot({ env: { UPSTREAM_TOKEN: secret } })
  project_id = await booted.project({ network: 'open' })
  other_id = await booted.project({ network: 'open' })
  own = await tokenOf(`project:${project_id}`)
})
afterAll(async () => {
  await own?.close()
  await booted?.stop()
  await upstream?.stop()
  redirecting?.close()
})

describe("a project's token", () => {
  it.each([
    ['loopback', 'http://127.0.0.1:8080/mcp'],
    ['loopback in another form', 'http://2130706433/mcp'],
    ['loopback of IPv6', 'http://[::1]:8080/mcp'],
    ['mapped loopback', 'http://[::ffff:127.0.0.1]/mcp'],
    ['metadata', 'http://169.254.169.254/latest'],
    ['private', 'http://10.0.0.1/mcp'],
    ['shared', 'http://100.64.0.1/mcp'],
  ])('cannot add an address that is %s', async (_, url) => {
    const fault = await refused(own, { action: 'add', name: 'bad', transport: 'http', url })
    expect(fault).toMatchObject({ kind: 'forbidden', message: expect.stringContaining('cannot be reached') })
  })

  it('cannot reach loopback by a name either, nor by an update', async () => {
    const { port } = redirecting.address() as AddressInfo
    const added = await ok(own, {
      action: 'add',
      name: 'by-name',
      transport: 'http',
      url: `http://localhost:${port}/mcp`,
    })
    expect(added).toMatchObject({ tools: 0, discovered_at: null })
    const got = await ok(own, { action: 'get', name: 'by-name' })
    expect(got.state).not.toBe('connected')
    expect(hits).toBe(0)
    // The control: an admin may, and the request arrives.
    await booted.ok('mcp_server', {
      action: 'add',
      name: 'control',
      transport: 'http',
      url: `http://localhost:${port}/mcp`,
    })
    expect(hits).toBeGreaterThan(0)
    const fault = await refused(own, { action: 'update', name: 'by-name', url: 'http://127.0.0.1/mcp' })
    expect(fault.kind).toBe('forbidden')
  })

  it('cannot use HTTP without a network, read the environment, or choose an image', async () => {
    const offline = await booted.project({ network: 'none' })
    const its = await tokenOf(`project:${offline}`)
    const url = 'https://mcp.example.com/mcp'
    const add = { action: 'add', name: 'x', transport: 'http', url }
    expect(await refused(its, add)).toMatchObject({
      kind: 'forbidden',
      message: expect.stringContaining('network none'),
    })
    await its.close()
    for (const wrong of [
      { ...add, headers: { authorization: 'Bearer ${env:UPSTREAM_TOKEN}' } },
      { ...add, options: { projects: 'all' } },
      { ...add, options: { auto_approve: 'read_only' } },
      { action: 'add', name: 'x', transport: 'stdio', command: 'node', options: { image: 'busybox' } },
      { ...add, project_id: undefined, options: { unsafe: true } },
    ])
      expect(await refused(own, wrong)).toMatchObject({ kind: 'forbidden' })
    const password = await refused(own, { ...add, url: 'https://user:pass@mcp.example.com/mcp' })
    expect(password.kind).toBe('invalid')
  })

  it("does not see, call or change another project's servers, nor global ones that it may not use", async () => {
    await booted.ok('mcp_server', {
      action: 'add',
      name: 'theirs',
      project_id: other_id,
      transport: 'http',
      url: upstream.url,
    })
    await booted.ok('mcp_server', { action: 'add', name: 'global', transport: 'http', url: upstream.url })
    for (const name of ['theirs', 'global', 'nobodys'])
      for (const action of ['get', 'tools', 'update', 'remove', 'call', 'restart', 'auth', 'approve_tools']) {
        const more = action === 'call' ? { tool: 'read_note' } : {}
        expect(await refused(own, { action, name, ...more })).toMatchObject({
          kind: 'not_found',
          message: `no MCP server "${name}"`,
        })
      }
    const foreign = await refused(own, { action: 'get', name: 'theirs', project_id: other_id })
    expect(foreign).toMatchObject({ kind: 'not_found', message: `no project ${other_id}` })
    const { servers } = await ok(own, { action: 'list' })
    expect(servers.map(({ name }: Answer) => name)).not.toContain('global')
  })

  it('cannot change what an admin set up for its project, where a secret would follow', async () => {
    await booted.ok('mcp_server', {
      action: 'add',
      name: 'admins',
      project_id,
      transport: 'http',
      url: upstream.url,
      headers: { 'x-key': secret },
    })
    for (const change of [
      { url: 'https://evil.example.com' },
      { headers: {} },
      { policy: { '*': 'allow' } },
      { deny: [] },
    ])
      expect(await refused(own, { action: 'update', name: 'admins', ...change })).toMatchObject({
        kind: 'forbidden',
      })
    expect(await refused(own, { action: 'remove', name: 'admins' })).toMatchObject({ kind: 'forbidden' })
    expect(await ok(own, { action: 'call', name: 'admins', tool: 'read_note' })).toMatchObject({ result: {} })
  })

  it('cannot take the name of a global server that its project uses', async () => {
    await booted.ok('project', { action: 'update', project_id, mcp_servers: ['global'] })
    const add = { action: 'add', name: 'global', transport: 'http', url: 'https://mcp.example.com/mcp' }
    expect(await refused(own, add)).toMatchObject({ kind: 'conflict' })
    expect(await refused(own, { action: 'update', name: 'global', enabled: false })).toMatchObject({
      kind: 'forbidden',
    })
    await booted.ok('project', { action: 'update', project_id, mcp_servers: [] })
  })
})

describe('secrets', () => {
  it('reach the server, and are shown nowhere', async () => {
    const fields = { transport: 'http', url: upstream.url }
    const headers = { 'x-stored': secret, 'x-env': 'Bearer ${env:UPSTREAM_TOKEN}' }
    const answers = [await booted.ok('mcp_server', { action: 'add', name: 'keyed', ...fields, headers })]
    expect(upstream.headers).toMatchObject({ 'x-stored': secret, 'x-env': `Bearer ${secret}` })
    answers.push(
      await booted.ok('mcp_server', { action: 'get', name: 'keyed' }),
      await booted.ok('mcp_server', { action: 'list' }),
      await booted.ok('mcp_server', { action: 'update', name: 'keyed', timeout_seconds: 9 }),
      await booted.ok('mcp_server', { action: 'tools', name: 'keyed' }),
    )
    expect(upstream.headers).toMatchObject({ 'x-stored': secret })
    expect(JSON.stringify(answers)).not.toContain(secret)
    expect(answers[1]).toMatchObject({
      headers: { 'x-stored': '«stored»', 'x-env': 'Bearer ${env:UPSTREAM_TOKEN}' },
    })
    expect(booted.server.log()).not.toContain(secret)
    const stored = await booted.query<Answer>('select * from upstreams')
    const audited = await booted.query<Answer>('select * from audit')
    expect(JSON.stringify([stored, audited])).not.toContain(secret)
  })

  it('of the server itself cannot be referred to, not even by an admin', async () => {
    const headers = { 'x-token': '${env:OUBLIETTE_ADMIN_TOKEN}' }
    const add = { action: 'add', name: 'own-env', transport: 'http', url: upstream.url, headers }
    expect(await booted.fault('mcp_server', add)).toMatchObject({ kind: 'forbidden' })
  })
})

describe('a droid with the scope of its project', () => {
  it('adds nothing that is used before a person approves it, and cannot approve it itself', async () => {
    const one = await droid(booted, project_id, { api_scope: `project:${project_id}` })
    const dialled = await dialAs(one)
    const asDroid = async (args: object) =>
      (await dialled.ask('oubliette_call_tool', { tool: 'mcp_server', arguments: args })) as Answer
    // As an upstream of the internet would: its row points to the scripted one.
    await asDroid({ action: 'add', name: 'mine', transport: 'http', url: 'https://mcp.invalid/mcp' })
    await booted.query(
      "update upstreams set trusted = true, settings = jsonb_set(settings, '{url}', $1) where name = 'mine'",
      [JSON.stringify(upstream.url)],
    )
    await booted.query("update upstreams set trusted = false where name = 'mine'")
    for (const args of [
      { action: 'approve_tools', name: 'mine' },
      { action: 'update', name: 'mine', policy: { '*': 'allow' } },
    ])
      expect((await asDroid(args)).error).toMatchObject({ data: { kind: 'forbidden' } })
    const { error } = await asDroid({ action: 'call', name: 'mine', tool: 'read_note' })
    expect(error).toBeTruthy()
    dialled.close()
  })

  it('must ask for a destructive call through mcp_server too', async () => {
    upstream.tools = [
      tool('read_note', reading),
      tool('delete_all', { annotations: { destructiveHint: true } }),
    ]
    await booted.ok('mcp_server', {
      action: 'add',
      name: 'sharp',
      project_id,
      transport: 'http',
      url: upstream.url,
    })
    const one = await droid(booted, project_id, { api_scope: `project:${project_id}` })
    const dialled = await dialAs(one)
    upstream.calls.length = 0
    const waiting = dialled.ask('oubliette_call_tool', {
      tool: 'mcp_server',
      arguments: { action: 'call', name: 'sharp', tool: 'delete_all' },
    })
    const asked = await until(
      async () => {
        const { approvals } = await booted.ok('approval', { action: 'list', status: 'open', project_id })
        return approvals.find(
          ({ kind, session_id }: Answer) => kind === 'tool' && session_id === one.session_id,
        )
      },
      { what: 'the call is asked' },
    )
    expect(upstream.calls).toEqual([])
    await booted.ok('approval', { action: 'decide', approval_id: asked.approval_id, decision: 'deny' })
    expect((await waiting).error).toMatchObject({ data: { kind: 'forbidden' } })
    expect(upstream.calls).toEqual([])
    dialled.close()
  })
})

describe('a hostile server', () => {
  it('does not fill the list with what cannot be stored, is too large, or is listed twice', async () => {
    upstream.tools = [
      tool('good', reading),
      tool('good', reading),
      tool('nul', { description: 'a\u0000b' }),
      tool('half', { description: 'a\ud800b' }),
      tool('huge', { description: 'x'.repeat(70_000) }),
      tool('n'.repeat(300)),
      tool('worse than.safe/name', reading),
    ]
    await booted.ok('mcp_server', { action: 'add', name: 'hostile', transport: 'http', url: upstream.url })
    const { tools } = await booted.ok('mcp_server', { action: 'tools', name: 'hostile' })
    expect(tools.map(({ name }: Answer) => name).sort()).toEqual(['good', 'worse than.safe/name'])
    for (const { visible_name } of tools) expect(visible_name).toMatch(/^[A-Za-z0-9_-]{1,64}$/)
  })

  it('that announces changes all the time is asked a few times only', async () => {
    const before = upstream.lists
    for (let at = 0; at < 500; at++) upstream.changed()
    await until(async () => upstream.lists > before, {
      what: 'it is asked again',
      deadline_ms: 20_000,
    }).catch(() => undefined)
    expect(upstream.lists - before).toBeLessThan(20)
  })
})
