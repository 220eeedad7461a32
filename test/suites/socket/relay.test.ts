// Caller tools from end to end: declared by a caller, called by a droid, asked, answered, once.
import { randomUUID } from 'node:crypto'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  callTool as call,
  clientCommand,
  clientEnv,
  dialAs,
  droid,
  greet,
  offer,
  openRequests,
  slow,
} from '../../fixtures/droid-socket.ts'
import { openStream } from '../../fixtures/event-stream.ts'
import { history, spawn, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot({
    // Requests past their deadline are closed at this interval.
    config: { reconcile_seconds: 1, limits: { max_active_sessions: 200, max_spawns_per_minute: 1000 } },
  })
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

const respond = (session_id: string, request_id: string, answer: object) =>
  booted.ok('caller_tool_response', { session_id, request_id, ...answer })
const refused = (session_id: string, request_id: string, answer: object = { result: 1 }) =>
  booted.fault('caller_tool_response', { session_id, request_id, ...answer })

describe('a shell droid', () => {
  it('calls a tool by name and prints what the caller answered', async () => {
    const asked = spawn(booted, project_id, `oubliette-client call app_greet '{"name":"Nikolai"}'`, offer)
    const { sessions } = await until(
      async () => {
        const found = await booted.ok('session', { action: 'list', project_id, status: 'waiting' })
        return found.sessions.length > 0 && found
      },
      { what: 'a session waits', deadline_ms: 30_000 },
    )
    const [{ session_id, requires, open_requests }] = sessions
    expect(open_requests).toMatchObject([{ caller_id: 'app', tool: 'greet', arguments: { name: 'Nikolai' } }])
    expect(requires).toEqual([open_requests[0].request_id])
    await respond(session_id, requires[0], { result: { said: 'hello' } })
    const { final_text } = await asked
    expect(JSON.parse(final_text)).toEqual({ said: 'hello' })
    const events = await history(booted, session_id)
    const types = events.map(({ type, status }) => (type === 'status' ? `status ${status}` : type))
    expect(types.filter((type) => /caller|waiting|running/.test(type))).toEqual([
      'status running',
      'caller_tool_request',
      'status waiting',
      'caller_tool_result',
      'status running',
    ])
  })
})

describe('what a caller answers', () => {
  it.each([
    ['an object', { b: [1, { c: null }], a: 'é✓' }],
    ['a text', 'plain text'],
    ['a number', 0],
    ['nothing', null],
    ['a list', [1, 'two', [3]]],
    ['an image', { content: [{ type: 'image', data: 'aGk=', mimeType: 'image/png' }] }],
    ['an error of the tool', { content: [{ type: 'text', text: 'no' }], isError: true }],
  ])('%s reaches the droid as it is', async (_what, result) => {
    const one = await droid(booted, project_id, offer)
    const asked = call(one, 'app_greet', { name: 'x' })
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    await respond(one.session_id, request_id, { result })
    expect((await asked).result).toEqual(result)
    await booted.ok('session', { action: 'end', session_id: one.session_id })
  })

  it('an error is a failed call, with what the caller said', async () => {
    const one = await droid(booted, project_id, offer)
    const asked = call(one, 'app_greet', { name: 'x' })
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    await respond(one.session_id, request_id, { error: { message: 'out of order', code: 7 } })
    expect((await asked).result).toEqual({
      content: [{ type: 'text', text: 'out of order' }],
      structuredContent: { error: { message: 'out of order', code: 7 } },
      isError: true,
    })
  })
})

describe('an answer', () => {
  it('counts once: a second, a foreign, a misplaced and an unknown one are refused with a reason', async () => {
    const one = await droid(booted, project_id, offer)
    const other = await droid(booted, project_id, offer)
    const asked = call(one, 'app_greet', { name: 'x' })
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    const { token } = await booted.ok('token', { action: 'create', name: 'other', scope: 'admin' })
    const stranger = await connect(booted.server, token)
    const given = { session_id: one.session_id, request_id, result: 'mine' }
    expect(await stranger.call('caller_tool_response', given)).toMatchObject({
      is_error: true,
      structured: {
        error: { kind: 'forbidden', message: expect.stringContaining('which another token declared') },
      },
    })
    await stranger.close()
    expect(await refused(other.session_id, request_id)).toMatchObject({ kind: 'not_found' })
    expect(await refused(one.session_id, randomUUID())).toMatchObject({ kind: 'not_found' })
    const both = await Promise.all(
      ['first', 'second', 'third'].map((result) =>
        booted.client().call('caller_tool_response', { ...given, result }),
      ),
    )
    expect(both.filter(({ is_error }) => !is_error)).toHaveLength(1)
    expect(await refused(one.session_id, request_id)).toMatchObject({
      kind: 'conflict',
      message: `request ${request_id} was already answered`,
    })
    const winner = ['first', 'second', 'third'][both.findIndex(({ is_error }) => !is_error)]
    expect((await asked).result).toBe(winner)
    const results = (await history(booted, one.session_id)).filter(
      ({ type }) => type === 'caller_tool_result',
    )
    expect(results).toMatchObject([{ request_id, outcome: 'answered', result: winner }])
  })

  it('that comes too late is refused, and the droid has an error on time', async () => {
    const one = await droid(booted, project_id, offer)
    const from = performance.now()
    const asked = call(one, 'app_hasty')
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    expect((await asked).error).toMatchObject({ code: -32000, data: { kind: 'timeout' } })
    expect(performance.now() - from).toBeGreaterThan(950)
    expect(await refused(one.session_id, request_id)).toMatchObject({
      kind: 'conflict',
      message: `request ${request_id} has timed out`,
    })
    await untilStatus(booted, one.session_id, 'running')
  })

  it('may take seven days: the deadline is in the row, not in a timer', async () => {
    const one = await droid(booted, project_id, offer)
    const asked = call(one, 'app_slow')
    const [{ created_at, deadline_at, request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    expect(Date.parse(deadline_at) - Date.parse(created_at)).toBe(604_800_000)
    await booted.query(`update caller_requests set deadline_at = now() - interval '1 second' where id = $1`, [
      request_id,
    ])
    expect(await refused(one.session_id, request_id)).toMatchObject({ message: /has timed out/ })
    await until(async () => (await openRequests(booted, one.session_id, 0)).length === 0, {
      what: 'the sweep closes it',
      deadline_ms: 40_000,
    })
    expect((await asked).error).toMatchObject({ data: { kind: 'timeout' } })
  })
})

describe('a declaration', () => {
  it.each([
    [{ ...offer, caller_id: 'oubliette' }, /is reserved/],
    [{ ...offer, caller_id: 'mcp__x' }, /is reserved/],
    [{ caller_id: 'a', caller_tools: [greet, greet] }, /twice/],
    [{ caller_id: 'a', caller_tools: [{ name: 'x', inputSchema: { type: 'string' } }] }, /type "object"/],
    [
      { caller_id: 'a', caller_tools: [{ name: 'x', inputSchema: { type: 'object', required: 1 } }] },
      /JSON schema/,
    ],
    [{ caller_tools: [greet] }, /requires caller_id/],
    [{ caller_id: 'a', caller_tools: [{ ...slow, timeout_seconds: 604_801 }] }, /timeout_seconds/],
  ])('%# that is wrong is refused before anything starts', async (fields, words) => {
    const fault = await booted.fault('session', { action: 'spawn', project_id, prompt: 'true', ...fields })
    expect(fault).toMatchObject({ kind: 'invalid', message: expect.stringMatching(words) })
  })

  it('may stand in context, and cannot take a name that another caller has', async () => {
    const one = await droid(booted, project_id, { context: { ...offer, caller_id: 'a_b' } })
    const message = { action: 'message', session_id: one.session_id, message: 'true' }
    const clash = { caller_id: 'a', caller_tools: [{ ...greet, name: 'b_greet' }] }
    expect(await booted.fault('session', { ...message, ...clash })).toMatchObject({ kind: 'conflict' })
    const { token } = await booted.ok('token', { action: 'create', name: 'other', scope: 'admin' })
    const stranger = await connect(booted.server, token)
    const stolen = await stranger.call('session', { ...message, caller_id: 'a_b', caller_tools: [] })
    expect(stolen.structured.error).toMatchObject({ kind: 'conflict' })
    await stranger.close()
  })

  it('checks arguments before the request reaches the caller, and audits what it refused', async () => {
    const one = await droid(booted, project_id, offer)
    expect((await call(one, 'app_greet', { name: 1 })).error).toMatchObject({ code: -32602 })
    expect((await call(one, 'app_greet', { name: 'x', more: 1 })).error).toMatchObject({ code: -32602 })
    expect((await call(one, 'app_nothing')).error).toMatchObject({
      code: -32000,
      data: { kind: 'not_found' },
    })
    expect(await openRequests(booted, one.session_id, 0)).toEqual([])
    const rows = await until(
      async () => {
        const found = await booted.query(
          `select caller_kind, caller_id, action, outcome from audit where tool = 'caller_tool' and session_id = $1 order by id`,
          [one.session_id],
        )
        return found.length === 3 && found
      },
      { what: 'three audit rows' },
    )
    expect(rows).toEqual(
      [
        ['app_greet', 'invalid'],
        ['app_greet', 'invalid'],
        ['app_nothing', 'not_found'],
      ].map(([action, outcome]) => ({ caller_kind: 'session', caller_id: one.session_id, action, outcome })),
    )
  })
})

describe('the droid', () => {
  it('cancels: the request ends as cancelled', async () => {
    const one = await droid(booted, project_id, offer)
    const dialled = await dialAs(one)
    const asked = dialled.ask('caller_tool', { tool: 'app_slow', arguments: {} }, 'mine')
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    dialled.notify('cancel', { id: 'mine' })
    expect((await asked).error?.message).toMatch(/cancelled/)
    await openRequests(booted, one.session_id, 0)
    expect(await refused(one.session_id, request_id)).toMatchObject({
      kind: 'conflict',
      message: `request ${request_id} was cancelled`,
    })
    dialled.close()
  })

  it('loses its connection: the request stays open, and the same call gets its answer', async () => {
    const one = await droid(booted, project_id, offer)
    const call_id = randomUUID()
    const first = await dialAs(one)
    void first.ask('caller_tool', { tool: 'app_slow', arguments: {}, call_id })
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    first.close()
    await first.closed
    const again = call(one, 'app_slow', {}, { call_id })
    await respond(one.session_id, request_id, { result: 'still here' })
    expect((await again).result).toBe('still here')
    expect((await call(one, 'app_slow', {}, { call_id })).result).toBe('still here')
    const { rows } = {
      rows: await booted.query('select 1 from caller_requests where session_id = $1', [one.session_id]),
    }
    expect(rows).toHaveLength(1)
  })

  it('receives progress', async () => {
    const one = await droid(booted, project_id, offer)
    const dialled = await dialAs(one)
    const asked = dialled.ask('caller_tool', { tool: 'app_slow', arguments: {} }, 'p')
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    await respond(one.session_id, request_id, { progress: { progress: 1, total: 2, message: 'half' } })
    await until(() => dialled.heard.some(({ method }) => method === 'progress'), { what: 'progress came' })
    expect(dialled.heard[0]?.params).toEqual({ id: 'p', progress: 1, total: 2, message: 'half' })
    await respond(one.session_id, request_id, { result: 'done' })
    expect((await asked).result).toBe('done')
    dialled.close()
  })

  it('ends: what it asked is cancelled', async () => {
    const one = await droid(booted, project_id, offer)
    void call(one, 'app_slow')
    const [{ request_id }] = (await openRequests(booted, one.session_id)) as [Answer]
    await booted.ok('session', { action: 'end', session_id: one.session_id })
    await until(async () => /cancelled/.test((await refused(one.session_id, request_id)).message), {
      what: 'the request is cancelled',
    })
  })
})

describe('a crash', () => {
  it('leaves open requests open: SIGKILL, restart, a caller that only polls answers, the droid has its result', async () => {
    const one = await droid(booted, project_id, offer)
    const client = new Client({ name: 'droid', version: '1' })
    await client.connect(new StdioClientTransport({ ...clientCommand, env: clientEnv(one) }))
    const stream = await openStream(
      booted.server,
      `/sessions/${one.session_id}/events`,
      booted.server.admin_token,
    )
    const asked = client.callTool({ name: 'app_slow', arguments: { n: 1 } })
    const [before] = (await openRequests(booted, one.session_id)) as [Answer]
    await stream.until(
      (events) => events.some(({ event }) => event === 'caller_tool_request'),
      'it is pushed',
    )
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    const page = await booted.ok('session', {
      action: 'events',
      session_id: one.session_id,
      max_events: 1000,
    })
    const polled = page.events.filter(({ type }: Answer) => type === 'caller_tool_request')
    expect(polled).toMatchObject([{ request_id: before.request_id, tool: 'slow', arguments: { n: 1 } }])
    expect(await openRequests(booted, one.session_id)).toMatchObject([{ request_id: before.request_id }])
    await respond(one.session_id, before.request_id, { result: { after: 'the crash' } })
    expect(await asked).toMatchObject({ structuredContent: { after: 'the crash' } })
    await client.close()
    stream.close()
  })
})
