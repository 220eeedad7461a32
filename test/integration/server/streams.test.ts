// Sessions of the 2025 era, subscriptions of the 2026 era, and what becomes of both when the server stops.
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Bench, bench } from '../../fixtures/mcp/clients.ts'
import { eventsOf } from '../../fixtures/mcp/events-of.ts'
import { createRows } from '../../fixtures/mcp/session-rows.ts'
import { until } from '../../harness/wait.ts'

let on: Bench
beforeEach(async () => {
  on = await bench()
})
afterEach(() => on.close())

const call = (id: number, name: string, args = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args },
})
const listen = (headers: Record<string, string>, signal?: AbortSignal) =>
  fetch(on.endpoint, {
    headers: { ...headers, accept: 'text/event-stream' },
    ...(signal ? { signal } : {}),
  })
/** Refused as a conflict until the server has noticed that the first connection is gone. */
const resume = (headers: Record<string, string>, id: string | undefined) =>
  until(
    async () => {
      const answer = await listen({ ...headers, 'last-event-id': id ?? '' })
      return answer.status === 200 && answer
    },
    { what: 'the stream is resumed' },
  )
const say = (data: string) => on.server.mcp.notify.message({ level: 'info', data }, () => true)
const said = (data: string) => ({ method: 'notifications/message', params: { level: 'info', data } })

/** What a GET stream says after the event that opens it. */
async function heardOn(stream: Response): Promise<ReturnType<typeof eventsOf>> {
  const events = eventsOf(stream)
  expect((await events.next()).value).toMatchObject({ id: expect.stringContaining('.'), data: undefined })
  return events
}

async function subscribe(notifications: Record<string, unknown>): Promise<Response> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  const method = 'subscriptions/listen'
  return on.post(
    { jsonrpc: '2.0', id: 'sub', method, params: { notifications, _meta } },
    { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method },
  )
}

describe('a session', () => {
  test('is bound to the token that opened it', async () => {
    const session = await on.initialize()
    const foreign = { ...session, authorization: `Bearer ${on.server.token('other')}` }
    for (const headers of [foreign, { ...session, 'mcp-session-id': 'unknown' }]) {
      const posted = await on.post(call(1, 'echo'), headers)
      expect(posted.status).toBe(404)
      expect(await posted.json()).toMatchObject({ error: { code: -32001, data: { kind: 'not_found' } } })
      expect((await listen(headers)).status).toBe(404)
      expect((await fetch(on.endpoint, { method: 'DELETE', headers })).status).toBe(404)
    }
    expect((await on.post(call(1, 'echo'), session)).status).toBe(200)
  })
  test('ends by DELETE, and its running calls with it', async () => {
    const session = await on.initialize()
    const running = on.post(call(1, 'hang'), session).then((answer) => answer.text())
    await until(() => on.door.begun.length, { what: 'the call runs' })
    expect((await fetch(on.endpoint, { method: 'DELETE', headers: session })).status).toBe(200)
    await running
    expect(on.door.aborted).toEqual(['hang'])
    expect((await on.post(call(2, 'echo'), session)).status).toBe(404)
  })
  test('refuses an id that is under way, and takes it again when its request is over', async () => {
    const session = await on.initialize()
    const running = on.post(call(1, 'hang'), session).then((answer) => answer.text())
    await until(() => on.door.begun.length, { what: 'the call runs' })
    for (const body of [call(1, 'echo'), [call(5, 'echo'), call(5, 'echo')]]) {
      const second = await on.post(body, session)
      expect(second.status).toBe(400)
      expect(await second.json()).toMatchObject({
        error: {
          code: -32600,
          message: expect.stringContaining('already running'),
          data: { kind: 'invalid' },
        },
      })
    }
    // The same number as a text is another id, and a request that is refused uses none up.
    expect((await on.post({ ...call(1, 'echo'), id: '1' }, session)).status).toBe(200)
    expect((await on.post(call(2, 'echo'), { ...session, accept: 'text/html' })).status).toBe(406)
    expect((await on.post(call(2, 'echo'), session)).status).toBe(200)
    const given_up = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } }
    expect((await on.post(given_up, session)).status).toBe(202)
    await running
    const again = await until(
      async () => {
        const answer = await on.post(call(1, 'echo'), session)
        return answer.status === 200 && answer
      },
      { what: 'the id is free' },
    )
    expect(await again.text()).toMatch(/"id":1\b/)
  })
  test('must be opened first', async () => {
    expect((await on.post(call(1, 'echo'))).status).toBe(400)
  })
  test('answers a cancelled call, so that its stream does not stay open', async () => {
    const session = await on.initialize()
    const running = on.post(call(7, 'hang'), session).then((answer) => answer.text())
    await until(() => on.door.begun.length, { what: 'the call runs' })
    const params = { requestId: 7 }
    await on.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params }, session)
    expect(await running).toContain('cancelled')
    expect(on.door.aborted).toEqual(['hang'])
  })
  test('is not opened by HEAD', async () => {
    const session = { ...(await on.initialize()), accept: 'text/event-stream' }
    expect((await fetch(on.endpoint, { method: 'HEAD', headers: session })).status).toBe(405)
    expect((await listen(session)).status).toBe(200)
  })
  test('makes room for a newer one when there are too many, unless it is in use', async () => {
    await on.close()
    on = await bench({ limits: { sessions_per_caller: 2 } })
    const [first, second] = [await on.initialize(), await on.initialize()]
    const stream = await listen(first)
    expect(stream.status).toBe(200)
    await on.initialize()
    expect((await on.post(call(1, 'echo'), second)).status).toBe(404)
    expect((await on.post(call(1, 'echo'), first)).status).toBe(200)
    await stream.body?.cancel()
  })
})

test('sessions of an earlier process count against the limits, and the one used longest ago makes room', async () => {
  const rows = createRows()
  const limits = { sessions_per_caller: 2 }
  const earlier = await bench({ rows, limits })
  const old = [await earlier.initialize(), await earlier.initialize()]
  await earlier.close()
  const later = await bench({ rows, limits })
  for (const [hash, caller] of earlier.server.tokens) later.server.tokens.set(hash, caller)
  const fresh = await later.initialize(earlier.token)
  const statuses = [...old, fresh].map(async (headers) => (await later.post(call(1, 'echo'), headers)).status)
  expect(await Promise.all(statuses)).toEqual([404, 200, 200])
  expect((await rows.load(10, 1)).map(({ id }) => id)).toEqual(
    [old[1]!, fresh].map((headers) => headers['mcp-session-id']),
  )
  await later.close()
})

describe('the GET stream of a session', () => {
  test('goes on from Last-Event-ID without a gap and without a repeat', async () => {
    const session = await on.initialize()
    const leave = new AbortController()
    const events = await heardOn(await listen(session, leave.signal))
    say('one')
    say('two')
    const first = (await events.next()).value
    expect(first?.data).toMatchObject(said('one'))
    leave.abort()
    await events.return(undefined).catch(() => {})
    say('three')

    const rest = await heardOn(await resume(session, first?.id))
    for (const data of ['two', 'three']) expect((await rest.next()).value?.data).toMatchObject(said(data))
    say('four')
    expect((await rest.next()).value?.data).toMatchObject(said('four'))
    await rest.return(undefined)
  })
  test('resumes the answer of a call whose connection was lost', async () => {
    const session = await on.initialize()
    const leave = new AbortController()
    const answer = await fetch(on.endpoint, {
      method: 'POST',
      headers: on.authorized(session),
      body: JSON.stringify(call(1, 'slow', { ms: 200 })),
      signal: leave.signal,
    })
    const { value: opening } = await eventsOf(answer).next()
    expect(opening).toMatchObject({ id: expect.stringContaining('.'), data: undefined })
    leave.abort()
    const resumed = eventsOf(await resume(session, opening?.id))
    const { value: answered } = await resumed.next()
    expect(answered?.data).toMatchObject({ id: 1, result: { isError: false } })
    expect((await listen({ ...session, 'last-event-id': answered?.id ?? '' })).status).toBe(405)
  })
  test('carries what the audience allows, and list_changed', async () => {
    const [mine, other] = [await on.initialize(), await on.initialize(on.server.token('other'))]
    const [to_me, to_other] = [await heardOn(await listen(mine)), await heardOn(await listen(other))]
    on.server.mcp.notify.message({ level: 'info', data: 'secret' }, (caller) => caller.name === 'tester')
    on.server.mcp.notify.toolsChanged()
    expect((await to_me.next()).value?.data).toMatchObject(said('secret'))
    expect((await to_other.next()).value?.data).toMatchObject({ method: 'notifications/tools/list_changed' })
    await Promise.all([to_me.return(undefined), to_other.return(undefined)])
  })
})

describe('a subscription of the 2026 era', () => {
  test('is acknowledged, receives changes, and ends with a result when the server stops', async () => {
    const events = eventsOf(await subscribe({ toolsListChanged: true }))
    expect((await events.next()).value?.data).toMatchObject({
      method: 'notifications/subscriptions/acknowledged',
    })
    on.server.mcp.notify.publish({ kind: 'tools_list_changed' }, (caller) => caller.name === 'somebody else')
    on.server.mcp.notify.publish({ kind: 'tools_list_changed' }, (caller) => caller.name === 'tester')
    expect((await events.next()).value?.data).toMatchObject({ method: 'notifications/tools/list_changed' })
    const closed = on.server.close()
    expect((await events.next()).value?.data).toMatchObject({ id: 'sub', result: { resultType: 'complete' } })
    expect((await events.next()).done).toBe(true)
    await closed
  })
})

test('revoking a token ends its streams and sessions', async () => {
  const session = await on.initialize()
  const [stream, subscription] = [await listen(session), await subscribe({ toolsListChanged: true })]
  const token_id = [...on.server.tokens.values()][0]?.token_id ?? ''
  on.server.lifetimes.revoke([token_id])
  await Promise.all([stream.text(), subscription.text()])
  expect((await on.post(call(1, 'echo'), session)).status).toBe(404)
})

describe('stopping', () => {
  test('lets a running call finish, ends streams at once, and refuses what comes later', async () => {
    const session = await on.initialize()
    const stream = await listen(session)
    const slow = on.post(call(1, 'slow', { ms: 400 }), session).then((answer) => answer.text())
    await until(() => on.door.begun.length, { what: 'the call runs' })
    const closed = on.server.close(5)
    // Many clients come back to a stream only if it breaks.
    await expect(stream.text()).rejects.toThrow('terminated')
    expect(on.door.aborted).toEqual([])
    expect(await slow).toContain('"isError":false')
    await closed
    await expect(on.post(call(2, 'echo'), session)).rejects.toThrow()
  })
  test('cuts off and cancels what is not done at the deadline', async () => {
    const session = await on.initialize()
    const hanging = on.post(call(1, 'hang'), session).then((answer) => answer.text())
    const cut = expect(hanging).rejects.toThrow()
    await until(() => on.door.begun.length, { what: 'the call runs' })
    const from = performance.now()
    await on.server.close(0.3)
    expect(performance.now() - from).toBeLessThan(5000)
    await cut
    await until(() => on.door.aborted.includes('hang'), { what: 'the call is cancelled' })
  })
})
