// MCP sessions of the revisions before 2026-07-28 when the server is killed and started again: clients go on with the session
// that they have, and no other client can.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { eventsOf } from '../../fixtures/mcp/events-of.ts'
import { connectOld, type OldClient, type Version, versions } from '../../fixtures/mcp/old-clients.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { openSession } from '../../harness/rpc.ts'
import { bootServer } from '../../harness/server.ts'
import { until } from '../../harness/wait.ts'

type Headers = Record<string, string>
type Ended = { error?: string; result?: unknown; after_ms: number }

let booted: Booted
let project_id: string
const clients = new Map<Version, { client: OldClient; session_id: string | undefined }>()
/** Of the call that each client made before the server was killed. */
const ended = new Map<Version, Promise<Ended>>()
const raw: Record<'mine' | 'others' | 'deleted' | 'revoked' | 'expired', Headers> = {
  mine: {},
  others: {},
  deleted: {},
  revoked: {},
  expired: {},
}
let last_event_id: string
let watched_session: string

const rpc = (method: string, params: object = {}, id: number | string = 1) => ({
  jsonrpc: '2.0',
  id,
  method,
  params,
})
const send = (body: unknown, headers: Headers, method = 'POST') =>
  fetch(`${booted.server.url}/mcp`, {
    method,
    headers: {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      ...headers,
    },
    ...(method === 'POST' ? { body: JSON.stringify(body) } : {}),
  })
const statusOf = async (headers: Headers, method = 'POST') => {
  const answer = await send(rpc('ping'), headers, method)
  await answer.body?.cancel()
  return answer.status
}

/** JSON, and nothing that PostgreSQL takes for text. */
const odd = 'raw \u0000 \ud800'

async function initialize(token: string): Promise<Headers> {
  const authorization = `Bearer ${token}`
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: odd, version: '1' },
  }
  const answer = await send(rpc('initialize', params), { authorization })
  await answer.text()
  const session = {
    authorization,
    'mcp-session-id': answer.headers.get('mcp-session-id') ?? '',
    'mcp-protocol-version': '2025-11-25',
  }
  await send({ jsonrpc: '2.0', method: 'notifications/initialized' }, session)
  return session
}

const token = async (name: string, more = {}) => ({
  ...((await booted.ok('token', { action: 'create', name, scope: 'admin', ...more })) as {
    token: string
    token_id: string
  }),
})
const spawn = async (prompt: string): Promise<string> => {
  const args = { action: 'spawn', project_id, droid: 'shell', prompt, new_session: true, wait_seconds: 20 }
  return (await booted.ok('session', args)).session_id
}

beforeAll(async () => {
  const rate = { per_token_per_second: 100_000, per_token_burst: 100_000 }
  booted = await boot({ config: { rate, log: { level: 'warn' } } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })

  raw.mine = await initialize(booted.server.admin_token)
  raw.deleted = await initialize(booted.server.admin_token)
  expect(await statusOf(raw.deleted, 'DELETE')).toBe(200)
  raw.others = await initialize((await token('others')).token)
  const gone = await token('gone')
  raw.revoked = await initialize(gone.token)
  const short = await token('short', { expires_in_hours: 1 })
  raw.expired = await initialize(short.token)
  watched_session = await spawn('echo before')
  const subscribed = await send(
    rpc('resources/subscribe', { uri: `oubliette://sessions/${watched_session}` }),
    raw.mine,
  )
  expect(await subscribed.text()).toContain('"result":{}')
  const stream = eventsOf(await send(undefined, { ...raw.mine, accept: 'text/event-stream' }, 'GET'))
  last_event_id = (await stream.next()).value?.id ?? ''

  for (const version of versions) {
    const client = await connectOld(version, booted.server.url, booted.server.admin_token)
    await client.listTools()
    clients.set(version, { client, session_id: client.session_id() })
  }
  const started = performance.now()
  for (const [version, { client }] of clients) {
    const after_ms = () => performance.now() - started
    const slow = { action: 'exec', project_id, command: `touch ${version}; sleep 90`, timeout_seconds: 100 }
    ended.set(
      version,
      client.callTool({ name: 'container', arguments: slow }).then(
        (result) => ({ result, after_ms: after_ms() }),
        (error: Error) => ({ error: error.message, after_ms: after_ms() }),
      ),
    )
  }
  const touched = versions.join(' ')
  await until(async () => (await booted.exec(project_id, `ls ${touched}`)).exit_code === 0, {
    what: 'all calls run',
  })
  // Calls that are answered at once are not worth remembering; these are not among them.
  await until(() => performance.now() - started > 500, { what: 'the calls have run for a while' })
  await booted.query('update tokens set revoked_at = now() where id = $1', [gone.token_id])
  await booted.query("update tokens set expires_at = now() - interval '1 minute' where id = $1", [
    short.token_id,
  ])
  await booted.server.kill('SIGKILL')
  await stream.return(undefined).catch(() => undefined)
  await booted.server.restart()
  await booted.reconnect()
}, 120_000)

afterAll(async () => {
  for (const { client } of clients.values()) await client.close().catch(() => undefined)
  await booted?.stop()
})

const own = (version: Version) => clients.get(version)!

async function hears(version: Version, text: string): Promise<void> {
  const session_id = await spawn(`echo ${text}`)
  const completed = () =>
    own(version).client.heard.some(({ params }) => {
      const event = params?.data as { session_id?: string; type?: string } | undefined
      return event?.session_id === session_id && event.type === 'completion'
    })
  await until(completed, { what: `the client of SDK ${version} hears the completion`, deadline_ms: 15_000 })
}

async function works(version: Version): Promise<void> {
  const { client, session_id } = own(version)
  expect((await client.listTools()).tools.map(({ name }) => name)).toContain('project')
  const answer = await client.callTool({ name: 'project', arguments: { action: 'get', project_id } })
  expect(answer.structuredContent).toMatchObject({ project_id })
  expect(client.session_id()).toBe(session_id)
}

describe.each(versions)('a client of SDK %s', (version) => {
  test('lists and calls with the session that it had', () => works(version))
  test('receives later events on its stream', () => hears(version, 'later'))
})

test.each(versions)(
  'the call that a client of SDK %s made before the kill ends with an error as soon as the client is back',
  async (version) => {
    const outcome = await Promise.race([
      ended.get(version),
      new Promise<string>((resolve) => setTimeout(resolve, 15_000, 'no answer')),
    ])
    expect(outcome).toMatchObject({
      error: expect.stringContaining('the server restarted before it answered'),
    })
    expect((outcome as Ended).after_ms).toBeLessThan(30_000)
  },
)

test('messages that are sent before a client is back wait for it, by Last-Event-ID', async () => {
  const session_id = await spawn('echo meanwhile')
  await booted.ok('session', { action: 'message', session_id: watched_session, message: 'echo again' })
  const headers = { ...raw.mine, accept: 'text/event-stream', 'last-event-id': last_event_id }
  const answer = await send(undefined, headers, 'GET')
  expect(answer.status).toBe(200)
  const seen: string[] = []
  for await (const { data } of eventsOf(answer)) {
    const { method, params } = (data ?? {}) as { method?: string; params?: Record<string, unknown> }
    const event = params?.data as { session_id?: string; type?: string } | undefined
    seen.push(event?.session_id === session_id ? `${event.type}` : `${method} ${params?.uri}`)
    if (seen.includes('completion') && seen.some((it) => it.includes(watched_session))) break
  }
  expect(seen).toContain(`notifications/resources/updated oubliette://sessions/${watched_session}`)
})

describe('an id of a session', () => {
  test('is accepted from the token that opened it, and from no other', async () => {
    expect(await statusOf({ ...raw.mine, authorization: raw.others.authorization! })).toBe(404)
    expect(await statusOf({ ...raw.others, authorization: raw.mine.authorization! })).toBe(404)
    expect(await statusOf(raw.mine)).toBe(200)
    expect(await statusOf(raw.others)).toBe(200)
  })

  test('is refused when it was deleted, made up, changed or given out by another server', async () => {
    const elsewhere = await bootServer()
    const foreign = await openSession(elsewhere.url, elsewhere.admin_token).finally(() => elsewhere.stop())
    const id = raw.mine['mcp-session-id']!
    const changed = id.replace(/.$/, (last) => (last === '0' ? '1' : '0'))
    for (const other of [
      raw.deleted['mcp-session-id']!,
      randomUUID(),
      changed,
      foreign,
      `${id} `.repeat(9).trim(),
      '../..',
    ])
      for (const method of ['POST', 'GET', 'DELETE'])
        expect([other, method, await statusOf({ ...raw.mine, 'mcp-session-id': other }, method)]).toEqual([
          other,
          method,
          404,
        ])
    expect(await statusOf(raw.mine)).toBe(200)
  })

  test('is refused when its token was revoked or has expired', async () => {
    expect(await statusOf(raw.revoked)).toBe(401)
    expect(await statusOf(raw.expired)).toBe(401)
    const { authorization } = raw.mine
    expect(await statusOf({ ...raw.revoked, authorization: authorization! })).toBe(404)
  })

  test('stays deleted when it is deleted after the restart', async () => {
    const session = await initialize(booted.server.admin_token)
    const rows = async () =>
      await booted.query('select 1 from mcp_sessions where id = $1', [session['mcp-session-id']])
    expect(await rows()).toHaveLength(1)
    expect(await statusOf(session, 'DELETE')).toBe(200)
    expect(await rows()).toHaveLength(0)
    expect(await statusOf(session)).toBe(404)
  })

  test('costs little when it is made up, a thousand times', async () => {
    const before = performance.now()
    const made_up = Array.from({ length: 1000 }, () =>
      statusOf({ ...raw.mine, 'mcp-session-id': randomUUID() }),
    )
    expect(new Set(await Promise.all(made_up))).toEqual(new Set([404]))
    const refused_ms = performance.now() - before
    const again = performance.now()
    const valid = Array.from({ length: 1000 }, (_, id) =>
      send(rpc('ping', {}, id), raw.mine).then((it) => it.text()),
    )
    await Promise.all(valid)
    const answered_ms = performance.now() - again
    expect(refused_ms).toBeLessThan(answered_ms * 2 + 500)
  })
})

test('a server that is stopped and started is no different from one that was killed', async () => {
  await booted.server.restart('SIGTERM')
  await booted.reconnect()
  for (const version of versions) {
    await works(version)
    await hears(version, 'again')
  }
  expect(await statusOf(raw.mine)).toBe(200)
}, 60_000)
