// A credential that ended keeps nothing open: streams of every kind, calls that wait, the keys of the sessions it spawned.
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { events, getStream, type Held, listen, post } from '../../../fixtures/attacks/held-request.ts'
import { dial, dialAs, keyOf, offer, socketOf } from '../../../fixtures/droid-socket.ts'
import { get, processes, spawn, untilStatus } from '../../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../../harness/booted.ts'
import { bodyFor, headersFor, messageIn, openSession, resultIn, rpc } from '../../../harness/rpc.ts'
import { until } from '../../../harness/wait.ts'

let booted: Booted
let url: string
let project_id: string
const open: { close(): void }[] = []

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } } })
  url = booted.server.url
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(async () => {
  for (const one of open) one.close()
  await booted?.stop()
})

type Token = { token: string; token_id: string; expires_at: string | null }
const mint = async (scope: string, expires_in_hours?: number): Promise<Token> =>
  (await booted.ok('token', {
    action: 'create',
    name: 'attacker',
    scope,
    ...(expires_in_hours ? { expires_in_hours } : {}),
  })) as Token
const kept = async <T extends { close(): void }>(one: Promise<T>): Promise<T> => {
  const held = await one
  open.push(held)
  return held
}
const tool = (name: string, args: object) => ({ name, arguments: args })
const errorOf = (held: Held) => {
  const reply = { status: held.status, headers: held.headers, text: held.text() }
  return (messageIn(reply)?.result?.structuredContent as Answer | undefined)?.error
}

/** A call may answer with its headers only when it is over. */
function waiting(held: Promise<Held>) {
  let at: number | undefined
  const ended = held.then(async (one) => {
    at = await one.ended
    return at
  })
  return { held, ended, ended_at: () => at }
}

/** Everything that one token can leave open, with what came of it. */
async function everything(given: Token, talking: string, seconds: number) {
  const { token } = given
  const session = await openSession(url, token)
  const call = (name: string, args: object, more: object = {}) =>
    waiting(kept(post(url, token, 'tools/call', tool(name, args), { progress: true, ...more })))
  const wait = { action: 'events', session_id: talking, since_index: 1_000_000, wait_seconds: 300 }
  const [of_session, of_project, get_stream, subscription, spawned] = await Promise.all([
    kept(events(url, `/sessions/${talking}/events`, token)),
    kept(events(url, `/projects/${project_id}/events`, token)),
    kept(getStream(url, token, session)),
    kept(listen(url, token)),
    rpc(url, token, 'tools/call', {
      name: 'session',
      arguments: {
        action: 'spawn',
        project_id,
        prompt: 'sleep 900',
        new_session: true,
        api_scope: `project:${project_id}`,
        ...offer,
      },
    }),
  ])
  const { session_id } = resultIn(spawned).structuredContent as Answer
  await untilStatus(booted, session_id, 'running')
  const droid = {
    session_id,
    project_id,
    api_key: keyOf(booted, session_id),
    socket: socketOf(booted, project_id),
  }
  const dialled = await kept(dialAs(droid))
  const timed = async <T>(work: Promise<T>) => ({ answer: await work, at: Date.now() })
  const asked = {
    caller_tool: timed(dialled.ask('caller_tool', { tool: 'app_slow', arguments: {} })),
    own_tool: timed(
      dialled.ask('oubliette_call_tool', {
        tool: 'session_events',
        arguments: { ...wait, action: undefined },
      }),
    ),
  }
  const calls = {
    long_poll: call('session', wait),
    long_poll_2025: call('session', wait, { session }),
    logs: call('container', { action: 'logs', project_id, follow: true, follow_seconds: 600 }),
    exec: call('container', {
      action: 'exec',
      project_id,
      command: `sleep ${seconds}`,
      timeout_seconds: 600,
    }),
    turn: call('session', {
      action: 'spawn',
      project_id,
      prompt: 'sleep 300',
      new_session: true,
      wait_seconds: 300,
    }),
  }
  const streams = { of_session, of_project, get_stream, subscription }
  return { ...given, session, session_id, droid, dialled, asked, streams, calls }
}

describe('a token that expires', () => {
  let short: Awaited<ReturnType<typeof everything>>
  let long: typeof short
  let expired: number
  let talking: string

  beforeAll(async () => {
    talking = (await spawn(booted, project_id, 'while sleep 0.2; do echo tick; done', { wait_seconds: 0 }))
      .session_id
    const scope = `project:${project_id}`
    const set_up = async (hours: number, seconds: number) =>
      await everything(await mint(scope, hours), talking, seconds)
    long = await set_up(1, 8992)
    // A busy machine needs longer to open all of them than the first of them lasts.
    for (const hours of [0.002, 0.006, 0.02]) {
      const made = await set_up(hours, 8991).catch(() => undefined)
      expired = Date.parse(made?.expires_at ?? '')
      if (!made || Date.now() > expired) continue
      short = made
      return
    }
    throw new Error('the token expired before everything was open')
  })

  /** At the moment of its expiry, and not before; the one with the longer life goes on. */
  async function endsOnTime(ends: Promise<number>, other: { ended_at(): number | undefined }) {
    const late = (await ends) - expired
    expect(late).toBeGreaterThan(-100)
    expect(late).toBeLessThan(1500)
    expect(other.ended_at()).toBeUndefined()
  }

  test('keeps no event stream of a session', async () => {
    expect(short.streams.of_session.status).toBe(200)
    await endsOnTime(short.streams.of_session.ended, long.streams.of_session)
    const { length } = long.streams.of_session.text()
    await until(() => long.streams.of_session.text().length > length, { what: 'the other stream goes on' })
  })
  test('keeps no event stream of a project', async () => {
    await endsOnTime(short.streams.of_project.ended, long.streams.of_project)
  })
  test('keeps no GET stream of the 2025 era, and no session', async () => {
    expect(short.streams.get_stream.status).toBe(200)
    await endsOnTime(short.streams.get_stream.ended, long.streams.get_stream)
    await until(
      async () => (await rpc(url, short.token, 'tools/list', {}, { session: short.session })).status === 401,
      {
        what: 'the token is refused',
      },
    )
    expect((await rpc(url, long.token, 'tools/list', {}, { session: long.session })).status).toBe(200)
  })
  test('keeps no subscription of the 2026 era', async () => {
    expect(short.streams.subscription.status).toBe(200)
    await endsOnTime(short.streams.subscription.ended, long.streams.subscription)
  })
  test.each(['long_poll', 'long_poll_2025', 'logs', 'exec', 'turn'] as const)(
    'has its waiting call (%s) answered with unauthenticated',
    async (name) => {
      await endsOnTime(short.calls[name].ended, long.calls[name])
      expect(errorOf(await short.calls[name].held)).toMatchObject({
        kind: 'unauthenticated',
        message: 'the token has expired',
      })
    },
  )
  test('leaves no command running that it waited for', async () => {
    await until(async () => (await processes(booted, project_id, /^sleep 8991/)).length === 0, {
      what: 'the command is gone',
    })
    expect((await processes(booted, project_id, /^sleep 8992/)).length).toBeGreaterThan(0)
  })
  test.each(['caller_tool', 'own_tool'] as const)(
    'ends the open calls of its sessions over the socket (%s)',
    async (name) => {
      const { answer, at } = await short.asked[name]
      expect(at - expired).toBeGreaterThan(-100)
      expect(at - expired).toBeLessThan(1500)
      expect(answer.error).toMatchObject({ code: -32001 })
      expect(await Promise.race([long.asked[name], 'open'])).toBe('open')
    },
  )
  test('closes the request that its session made of a caller', async () => {
    await short.asked.caller_tool
    await until(async () => (await get(booted, short.session_id)).open_requests.length === 0, {
      what: 'the request is cancelled',
    })
    expect((await get(booted, long.session_id)).open_requests).toHaveLength(1)
  })
  test('takes the keys of its sessions along', async () => {
    await short.streams.of_session.ended
    const again = await kept(dial(short.droid.socket))
    expect(await again.ask('oubliette_tools', { api_key: short.droid.api_key })).toMatchObject({
      error: { code: -32001 },
    })
    expect(await again.ask('oubliette_tools', { api_key: long.droid.api_key })).toHaveProperty('result')
    expect(await short.dialled.ask('caller_tools')).toMatchObject({ error: { code: -32001 } })
  })
  test('starts no call whose body arrives after its end', async () => {
    const [slow, other] = [await mint('admin'), await mint('admin')]
    const revoke = () => booted.ok('token', { action: 'revoke', token_id: slow.token_id })
    expect(await sendSlowly(slow.token, revoke)).toBe(401)
    expect(await sendSlowly(other.token, async () => undefined)).toBe(200)
  })
  test('is ended by revocation in the same way', async () => {
    await booted.ok('token', { action: 'revoke', token_id: long.token_id })
    const revoked = Date.now()
    for (const stream of Object.values(long.streams))
      expect((await stream.ended) - revoked).toBeLessThan(1500)
    for (const call of Object.values(long.calls)) {
      await call.ended
      expect(errorOf(await call.held)).toMatchObject({
        kind: 'unauthenticated',
        message: 'the token was revoked',
      })
    }
    for (const { answer } of await Promise.all(Object.values(long.asked)))
      expect(answer.error).toMatchObject({ code: -32001 })
  })
})

/** The status of a request whose body is sent in two halves, with something happening in between. */
async function sendSlowly(token: string, meanwhile: () => Promise<unknown>): Promise<number> {
  const body = JSON.stringify(bodyFor('2026-07-28', 'tools/call', tool('project', { action: 'list' })))
  const given = Object.entries(headersFor('2026-07-28', token, 'tools/call', 'project'))
  const headers = Object.fromEntries(
    given.filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
  const outgoing = request(new URL('/mcp', url), { method: 'POST', headers, agent: false })
  const answered = once(outgoing, 'response')
  outgoing.write(body.slice(0, 20))
  // Requests are taken in order: when this one is answered, the token of the other was checked.
  await rpc(url, token, 'tools/list')
  await meanwhile()
  outgoing.end(body.slice(20))
  const [response] = (await answered) as [IncomingMessage]
  response.resume()
  return response.statusCode ?? 0
}
