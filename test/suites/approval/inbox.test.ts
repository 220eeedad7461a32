// Calls that a person must approve, seen from the droid, the caller whose tool it is, and the inbox.
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { asked, decide, list, openApprovals } from '../../fixtures/approvals.ts'
import { withToken } from '../../fixtures/attacks/authority.ts'
import {
  callTool,
  clientCommand,
  clientEnv,
  type Droid,
  dialAs,
  droid,
  keyOf,
  openRequests,
} from '../../fixtures/droid-socket.ts'
import { end, get, history, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot({
    config: {
      reconcile_seconds: 1,
      log: { level: 'warn' },
      limits: { max_active_sessions: 200, max_spawns_per_minute: 1000 },
    },
  })
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

const spawned = () => droid(booted, project_id, asked)
const answer = async ({ session_id }: Droid, result: unknown) => {
  const [request] = (await openRequests(booted, session_id)) as [Answer]
  await booted.ok('caller_tool_response', { session_id, request_id: request.request_id, result })
  return request
}
const kindOf = ({ error }: { error?: { data?: Answer } }) => error?.data?.kind ?? 'ok'
const openCount = async (session_id: string) => (await get(booted, session_id)).open_requests.length

describe('a call that must be approved', () => {
  test('waits for the decision before its caller gets it, and its session waits with it', async () => {
    const one = await spawned()
    const calling = callTool(one, 'bank_pay', { euro: 5 })
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    expect(approval).toMatchObject({
      kind: 'tool',
      session_id: one.session_id,
      project_id,
      server: 'bank',
      tool: 'pay',
      arguments: { euro: 5 },
      status: 'open',
      decided_by: null,
      scope: null,
      detail: { because: 'caller "bank" requires approval of this tool' },
    })
    const days = (Date.parse(approval.expires_at) - Date.parse(approval.created_at)) / 86_400_000
    expect(days).toBe(7)
    expect(await get(booted, one.session_id)).toMatchObject({
      status: 'waiting',
      requires: [approval.approval_id],
      open_requests: [],
    })
    await decide(booted, approval.approval_id, 'allow', { reason: 'rent' })
    const request = await answer(one, 'paid')
    expect(request).toMatchObject({ tool: 'pay', arguments: { euro: 5 } })
    expect((await calling).result).toBe('paid')
    const events = await history(booted, one.session_id)
    const told = events
      .filter(({ type }) => /approval|caller|status/.test(type))
      .map(({ type, status }) => status ?? type)
    expect(told.slice(told.indexOf('running') + 1)).toEqual([
      'tool_approval_request',
      'waiting',
      'allowed',
      'running',
      'caller_tool_request',
      'waiting',
      'caller_tool_result',
      'running',
    ])
    expect(events.find(({ type }) => type === 'tool_approval_request')).toMatchObject({
      approval_id: approval.approval_id,
      kind: 'tool',
      server: 'bank',
      tool: 'pay',
      arguments: { euro: 5 },
    })
    expect(events.find(({ type }) => type === 'tool_approval_decision')).toMatchObject({
      approval_id: approval.approval_id,
      decision: 'allow',
      reason: 'rent',
    })
    const again = await booted.fault('approval', {
      ...{ action: 'decide', approval_id: approval.approval_id, decision: 'deny' },
    })
    expect(again).toMatchObject({ kind: 'conflict', message: expect.stringContaining('already allowed') })
    await end(booted, one.session_id)
  })

  test('that is denied gives the model an error with the reason, and its caller hears nothing of it', async () => {
    const one = await spawned()
    const client = new Client({ name: 'droid', version: '1' })
    await client.connect(new StdioClientTransport({ ...clientCommand, env: clientEnv(one) }))
    try {
      const calling = client.callTool({ name: 'bank_pay', arguments: { euro: 500 } })
      const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
      await decide(booted, approval.approval_id, 'deny', { reason: 'too much' })
      const { isError, content } = await calling
      expect(isError).toBe(true)
      expect(JSON.stringify(content)).toMatch(/bank_pay was not approved: too much/)
      expect(await openCount(one.session_id)).toBe(0)
      expect((await get(booted, one.session_id)).status).toBe('running')
    } finally {
      await client.close()
    }
    const audited = () =>
      booted.query<{ outcome: string }>(
        "select outcome from audit where session_id = $1 and tool = 'caller_tool'",
        [one.session_id],
      )
    const outcomes = await until(async () => (await audited()).length > 0 && audited(), {
      what: 'it is audited',
    })
    expect(outcomes).toEqual([{ outcome: 'forbidden' }])
    await end(booted, one.session_id)
  })

  test('has its whole time-out after the decision', async () => {
    const one = await spawned()
    const calling = callTool(one, 'bank_hasty')
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    // Twice the time-out of the tool.
    await until(() => Date.now() - Date.parse(approval.created_at) > 2_000, {
      what: 'its time-out has passed',
    })
    await decide(booted, approval.approval_id, 'allow')
    await answer(one, 'in time')
    expect((await calling).result).toBe('in time')
    await end(booted, one.session_id)
  })

  test('that is not to be approved is not asked', async () => {
    const one = await spawned()
    const calling = callTool(one, 'bank_look')
    await answer(one, 'seen')
    expect((await calling).result).toBe('seen')
    expect(await list(booted, { session_id: one.session_id })).toEqual([])
    await end(booted, one.session_id)
  })

  test('is asked once when its connection is lost, and runs once', async () => {
    const one = await spawned()
    const first = await dialAs(one)
    void first.ask('caller_tool', { tool: 'bank_pay', arguments: { euro: 1 }, call_id: 'first-call' })
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    first.close()
    const calls = [1, 2].map(() => callTool(one, 'bank_pay', { euro: 1 }, { call_id: 'first-call' }))
    await decide(booted, approval.approval_id, 'allow')
    await answer(one, 'paid')
    for (const { result } of await Promise.all(calls)) expect(result).toBe('paid')
    // And after all is over.
    expect((await callTool(one, 'bank_pay', { euro: 1 }, { call_id: 'first-call' })).result).toBe('paid')
    expect(await list(booted, { session_id: one.session_id })).toHaveLength(1)
    const requests = await booted.query('select id from caller_requests where session_id = $1', [
      one.session_id,
    ])
    expect(requests).toHaveLength(1)
    await end(booted, one.session_id)
  })

  test('that was approved after its droid had gone is made by the next call with the same arguments, once', async () => {
    const one = await spawned()
    const gone = await dialAs(one)
    void gone.ask('caller_tool', { tool: 'bank_pay', arguments: { euro: 7, to: 'x' } })
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    gone.close()
    await decide(booted, approval.approval_id, 'allow')
    // Other arguments are another call.
    const other = callTool(one, 'bank_pay', { euro: 8, to: 'x' })
    const [second] = (await openApprovals(booted, one.session_id)) as [Answer]
    await decide(booted, second.approval_id, 'deny')
    expect(kindOf(await other)).toBe('forbidden')
    const calling = callTool(one, 'bank_pay', { to: 'x', euro: 7 })
    await answer(one, 'paid')
    expect((await calling).result).toBe('paid')
    const third = callTool(one, 'bank_pay', { euro: 7, to: 'x' })
    const [asking] = (await openApprovals(booted, one.session_id)) as [Answer]
    await decide(booted, asking.approval_id, 'deny')
    expect(kindOf(await third)).toBe('forbidden')
    await end(booted, one.session_id)
  })
})

describe('an open approval', () => {
  test('is cancelled when the droid cancels its call, and with the session', async () => {
    const one = await spawned()
    const dialled = await dialAs(one)
    const calling = dialled.ask('caller_tool', { tool: 'bank_pay', arguments: {} }, 'call-1')
    await openApprovals(booted, one.session_id)
    dialled.notify('cancel', { id: 'call-1' })
    await calling
    await openApprovals(booted, one.session_id, 0)
    expect((await get(booted, one.session_id)).status).toBe('running')
    const second = callTool(one, 'bank_pay', { n: 2 })
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    await end(booted, one.session_id)
    expect((await second).error).toBeDefined()
    const late = await booted.fault('approval', {
      ...{ action: 'decide', approval_id: approval.approval_id, decision: 'allow' },
    })
    expect(late).toMatchObject({ kind: 'conflict', message: expect.stringContaining('already cancelled') })
    expect((await list(booted, { session_id: one.session_id })).map(({ status }) => status)).toEqual([
      'cancelled',
      'cancelled',
    ])
  })

  test('is cancelled with its turn', async () => {
    const one = await spawned()
    const calling = callTool(one, 'bank_pay')
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    await booted.ok('session', { action: 'cancel', session_id: one.session_id })
    await untilStatus(booted, one.session_id, 'idle')
    expect((await calling).error?.message).toMatch(/not approved: the droid no longer waits/)
    const got = await booted.ok('approval', { action: 'get', approval_id: approval.approval_id })
    expect(got.status).toBe('cancelled')
    await end(booted, one.session_id)
  })

  test('is denied when its time is over', async () => {
    const one = await spawned()
    const calling = callTool(one, 'bank_pay')
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    await booted.query('update approvals set expires_at = now() where id = $1', [approval.approval_id])
    const late = await booted.fault('approval', {
      ...{ action: 'decide', approval_id: approval.approval_id, decision: 'allow' },
    })
    expect(late).toMatchObject({ kind: 'conflict', message: expect.stringContaining('already expired') })
    expect((await calling).error?.message).toMatch(/not approved: no decision was made before/)
    expect((await get(booted, one.session_id)).status).toBe('running')
    // One that nothing looks at is closed by the sweep.
    const swept = callTool(one, 'bank_pay', { n: 2 })
    const [second] = (await openApprovals(booted, one.session_id)) as [Answer]
    await booted.query('update approvals set expires_at = now() where id = $1', [second.approval_id])
    expect(kindOf(await swept)).toBe('forbidden')
    expect(await booted.ok('approval', { action: 'get', approval_id: second.approval_id })).toMatchObject({
      status: 'expired',
      reason: expect.stringContaining('no decision was made before'),
      decided_by: null,
    })
    await end(booted, one.session_id)
  })

  test('is decided once by many at the same time', async () => {
    const one = await spawned()
    const calling = callTool(one, 'bank_pay')
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        booted.client().call('approval', {
          ...{ action: 'decide', approval_id: approval.approval_id, reason: `by ${n}` },
          decision: n % 2 === 0 ? 'allow' : 'deny',
        }),
      ),
    )
    const won = answers.filter(({ is_error }) => !is_error)
    expect(won).toHaveLength(1)
    const { status, reason } = won[0]!.structured as Answer
    if (status === 'allowed') {
      await answer(one, 'paid')
      expect((await calling).result).toBe('paid')
    } else expect((await calling).error?.message).toContain(reason)
    const decisions = (await history(booted, one.session_id)).filter(
      ({ type }) => type === 'tool_approval_decision',
    )
    expect(decisions).toMatchObject([{ reason }])
    await end(booted, one.session_id)
  })
})

describe('a decision that is remembered', () => {
  test('for the session spares its next calls, and those of no other session', async () => {
    const [one, other] = [await spawned(), await spawned()]
    const first = callTool(one, 'bank_pay')
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    await decide(booted, approval.approval_id, 'allow', { scope: 'session' })
    await answer(one, 1)
    await first
    const second = callTool(one, 'bank_pay', { other: 'arguments' })
    await answer(one, 2)
    expect((await second).result).toBe(2)
    const foreign = callTool(other, 'bank_pay')
    const [asking] = (await openApprovals(booted, other.session_id)) as [Answer]
    // A denial is remembered as well, with its reason.
    await decide(booted, asking.approval_id, 'deny', { scope: 'session', reason: 'not here' })
    expect(kindOf(await foreign)).toBe('forbidden')
    expect((await callTool(other, 'bank_pay', { n: 2 })).error?.message).toMatch(/not approved: not here/)
    // It is about one tool.
    const hasty = callTool(one, 'bank_hasty')
    await openApprovals(booted, one.session_id)
    await Promise.all([one, other].map(({ session_id }) => end(booted, session_id)))
    await hasty
  })

  test('always counts for the project and the token that declared the tool, is listed, outlives its session, and is revoked', async () => {
    const one = await spawned()
    const first = callTool(one, 'bank_pay')
    const [approval] = (await openApprovals(booted, one.session_id)) as [Answer]
    await decide(booted, approval.approval_id, 'allow', { scope: 'always' })
    await answer(one, 1)
    await first
    await end(booted, one.session_id)
    await until(async () => (await get(booted, one.session_id)).ended_at, { what: 'the session is over' })
    await booted.ok('session', { action: 'cleanup', project_id, max_age_hours: 0 })
    const rules = await list(booted, { project_id, scope: 'always' })
    expect(rules).toMatchObject([{ approval_id: approval.approval_id, status: 'allowed', session_id: null }])

    const second = await spawned()
    const calling = callTool(second, 'bank_pay', { n: 2 })
    await answer(second, 2)
    expect((await calling).result).toBe(2)

    // Another token with the same caller_id is another caller; another project has its own decisions.
    const { token } = await booted.ok('token', {
      action: 'create',
      name: 't',
      scope: `project:${project_id}`,
    })
    const theirs = await withToken(booted, token)
    const { session_id } = (
      await theirs('session', {
        action: 'spawn',
        project_id,
        prompt: 'sleep 900',
        new_session: true,
        ...asked,
      })
    ).result
    const third = { session_id, project_id, api_key: keyOf(booted, session_id), socket: one.socket }
    const byOther = callTool(third, 'bank_pay')
    await openApprovals(booted, session_id)
    await end(booted, session_id)
    await byOther
    const elsewhere = await booted.project()
    const fourth = await droid(booted, elsewhere, asked)
    const foreign = callTool(fourth, 'bank_pay')
    await openApprovals(booted, fourth.session_id)
    await end(booted, fourth.session_id)
    await foreign

    const revoke = { action: 'revoke', approval_id: approval.approval_id }
    expect((await booted.ok('approval', revoke)).revoked_at).not.toBeNull()
    expect((await booted.fault('approval', revoke)).kind).toBe('conflict')
    expect(await list(booted, { project_id, scope: 'always' })).toEqual([])
    const asking = callTool(second, 'bank_pay', { n: 3 })
    const [again] = (await openApprovals(booted, second.session_id)) as [Answer]
    await decide(booted, again.approval_id, 'deny')
    expect(kindOf(await asking)).toBe('forbidden')
    await end(booted, second.session_id)
  })
})
