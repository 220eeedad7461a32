// Attacks of a droid that may write to its project on the approval of its own call: by itself, through the sessions that it can
// reach, through a schedule, and through tokens that it creates. The control is a token that belongs to no session.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { asked, openApprovals } from '../../fixtures/approvals.ts'
import { type Call, expectKinds, withKey, withToken } from '../../fixtures/attacks/authority.ts'
import { callTool, type Droid, droid, keyOf, openRequests, socketOf } from '../../fixtures/droid-socket.ts'
import { end, history, textOf, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
/** Its sessions can mint. */
let granted_id: string
beforeAll(async () => {
  booted = await boot({
    config: {
      log: { level: 'warn' },
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000, max_agents_per_session: 100 },
    },
  })
  project_id = await booted.project()
  granted_id = await booted.project({ api_scope_grant: 'admin' })
})
afterAll(() => booted?.stop())

const asDroid = (session_id: string): Droid => ({
  session_id,
  project_id,
  api_key: keyOf(booted, session_id),
  socket: socketOf(booted, project_id),
})
const scoped = () => ({ api_scope: `project:${project_id}` })

async function below(call: Call): Promise<Droid> {
  const spawning = {
    action: 'spawn',
    project_id,
    prompt: 'sleep 900',
    new_session: true,
    ...scoped(),
  }
  const { session_id } = (await call('session', spawning)).result
  await untilStatus(booted, session_id, 'running')
  return asDroid(session_id)
}
const decide = (call: Call, approval_id: string, more: object = {}) =>
  call('approval', { action: 'decide', approval_id, decision: 'allow', ...more })
/** As a shell droid decides. */
const script = (approval_id: string) =>
  `oubliette-client call approval '{"action":"decide","approval_id":"${approval_id}","decision":"allow"}'; echo tried`

test('a droid has nobody approve its own call whom it can make do so', async () => {
  const root = await droid(booted, project_id, scoped())
  const byRoot = await withKey(root)
  const asking = await below(byRoot)
  const admin = { action: 'message', session_id: asking.session_id, message: 'true' }
  await booted.ok('session', { ...admin, ...asked })
  const own = await withKey(asking)
  const child = await withKey(await below(own))
  const stranger = await droid(booted, project_id, scoped())
  const byStranger = await withKey(stranger)

  const calling = callTool(asking, 'bank_pay', { euro: 1 })
  const [{ approval_id }] = (await openApprovals(booted, asking.session_id)) as [Answer]
  for (const call of [own, child, byStranger, byRoot])
    expectKinds(
      [await decide(call, approval_id), await decide(call, approval_id, { scope: 'always' })],
      'forbidden',
    )

  // Messages to other sessions: these run what the droid wrote, with their own keys.
  for (const to of [root, stranger]) {
    const { result } = await own('session', {
      action: 'message',
      session_id: to.session_id,
      message: script(approval_id),
    })
    expect(result.turn_id).toBeDefined()
    await booted.ok('session', { action: 'cancel', session_id: to.session_id })
    const text = await until(
      async () => {
        const said = textOf(await history(booted, to.session_id))
        return said.includes('tried') && said
      },
      { what: 'the other session has tried', deadline_ms: 20_000 },
    )
    expect(text).toMatch(/"kind":\s*"forbidden"/)
  }

  // A schedule spawns a session without parents.
  const timing = {
    name: 'loop',
    cron_expr: '@yearly',
    prompt: script(approval_id),
    targets: [{ project_id }],
  }
  const { schedule_id } = (await own('schedule', { action: 'create', ...timing })).result
  await own('schedule', { action: 'trigger', schedule_id })
  const [run] = await until(
    async () => {
      const { runs } = await booted.ok('schedule', { action: 'history', schedule_id })
      return runs[0]?.ended_at && (runs as Answer[])
    },
    { what: 'the schedule has run', deadline_ms: 20_000 },
  )
  expect(run!.output).toMatch(/tried/)

  expect((await booted.ok('approval', { action: 'get', approval_id })).status).toBe('open')
  const person = await withToken(booted, booted.server.admin_token)
  expectKinds([await decide(person, approval_id)], 'ok')
  const [request] = (await openRequests(booted, asking.session_id)) as [Answer]
  const { session_id, request_id } = request
  await booted.ok('caller_tool_response', { session_id, request_id, result: 'paid' })
  expect((await calling).result).toBe('paid')
  await Promise.all([root, stranger].map((one) => end(booted, one.session_id)))
})

test('a token that the droid created does not approve its call, and revokes nothing', async () => {
  const one = await droid(booted, granted_id, { ...asked, api_scope: 'admin' })
  const own = await withKey(one)
  const minted = await withToken(
    booted,
    (await own('token_create', { name: 'self', scope: 'admin' })).result.token,
  )
  const calling = callTool(one, 'bank_pay')
  const [{ approval_id }] = (await openApprovals(booted, one.session_id)) as [Answer]
  expectKinds([await decide(minted, approval_id), await decide(own, approval_id)], 'forbidden')
  const person = await withToken(booted, booted.server.admin_token)
  expectKinds([await decide(person, approval_id, { decision: 'deny', scope: 'always' })], 'ok')
  expect((await calling).error?.data?.kind).toBe('forbidden')
  const revoke = { action: 'revoke', approval_id }
  expectKinds([await minted('approval', revoke), await own('approval', revoke)], 'forbidden')
  expectKinds([await person('approval', revoke)], 'ok')
  await end(booted, one.session_id)
})

test('an approval of no project exists for admins only', async () => {
  const [{ id }] = (await booted.query<{ id: string }>(
    `insert into approvals (id, kind, request_id, tool_call, options, server, server_id, tool, status, created_at)
     values ('apr_0123456789ab', 'definition', 'r', '{}', '[]', 'files', 'files', 'write', 'open', now()) returning id`,
  )) as [{ id: string }]
  const { token } = await booted.ok('token', { action: 'create', name: 'p', scope: `project:${project_id}` })
  const person = await withToken(booted, token)
  const one = await droid(booted, granted_id, { api_scope: 'admin' })
  const own = await withKey(one)
  const getting = { action: 'get', approval_id: id }
  expectKinds([await person('approval', getting), await decide(person, id)], 'not_found')
  expect((await person('approval', { action: 'list' })).result.approvals).not.toContainEqual(
    expect.objectContaining({ approval_id: id }),
  )
  expectKinds([await decide(own, id)], 'forbidden')
  const admin = await withToken(booted, booted.server.admin_token)
  expectKinds([await admin('approval', getting), await decide(admin, id)], 'ok')
  await end(booted, one.session_id)
})
