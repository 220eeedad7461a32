// Attacks of a session on its own bounds: answering its own questions, and acting through a session that may do more.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import { type Call, expectKinds, mint, withKey, withToken } from '../../fixtures/attacks/authority.ts'
import { type Droid, keyOf, socketOf } from '../../fixtures/droid-socket.ts'
import { end, get, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'

let booted: Booted
/** Has the grant `admin`, so that its sessions can mint. */
let project_id: string

beforeAll(async () => {
  booted = await boot({
    config: {
      log: { level: 'warn' },
      droids: scriptedDroids,
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000, max_agents_per_session: 100 },
    },
  })
  project_id = await booted.project({ droid: 'scripted', api_scope_grant: 'admin' })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterAll(() => booted?.stop())

const asDroid = (session_id: string): Droid => ({
  session_id,
  project_id,
  api_key: keyOf(booted, session_id),
  socket: socketOf(booted, project_id),
})
type Family = { session_id: string; call: Awaited<ReturnType<typeof withKey>> }
const scope = () => ({ api_scope: `project:${project_id}` })

async function agent(fields: object = {}, prompt = 'say hello'): Promise<Family> {
  const { session_id } = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt,
    new_session: true,
    ...scope(),
    ...fields,
  })
  await untilStatus(booted, session_id, prompt.startsWith('ask') ? 'waiting' : 'idle')
  return { session_id, call: await withKey(asDroid(session_id)) }
}
/** Below another session, by its key. */
async function below(parent: Family, fields: object = {}, prompt = 'say hello'): Promise<Family> {
  const spawning = { action: 'spawn', project_id, prompt, new_session: true, ...scope(), ...fields }
  const { kind, message, result } = await parent.call('session', spawning)
  expect(`${kind} ${message}`).toBe('ok ')
  const { session_id } = result as { session_id: string }
  await untilStatus(booted, session_id, prompt.startsWith('ask') ? 'waiting' : 'idle')
  return { session_id, call: await withKey(asDroid(session_id)) }
}
async function approvalOf({ session_id }: Family): Promise<string> {
  const { approvals } = await booted.ok('approval', { action: 'list', session_id, status: 'open' })
  return (approvals as Answer[])[0]!.approval_id
}
const decide = (call: Call, approval_id: string) =>
  call('approval', { action: 'decide', approval_id, decision: 'allow' })
const isOpen = async (approval_id: string) =>
  expect((await booted.ok('approval', { action: 'get', approval_id })).status).toBe('open')

describe('an approval', () => {
  const off = { autonomy_level: 'off' }

  test('is not decided by the session that asks, nor by a child of it', async () => {
    const root = await agent(off)
    const child = await below(root)
    await booted.ok('session', { action: 'message', session_id: root.session_id, message: 'ask edit' })
    await untilStatus(booted, root.session_id, 'waiting')
    const approval_id = await approvalOf(root)
    expectKinds([await decide(root.call, approval_id), await decide(child.call, approval_id)], 'forbidden')
    await isOpen(approval_id)
    // The control: a token of the same scope, which belongs to no session, decides.
    const person = await withToken(booted, booted.server.admin_token)
    expectKinds([await decide(person, approval_id)], 'ok')
    expect((await untilStatus(booted, root.session_id, 'idle')).final_text).toBe('yes')
    await end(booted, root.session_id)
  })

  test('is decided by an ancestor, and by no other session of the tree or the project', async () => {
    const root = await agent(off)
    const [asking, sibling] = [await below(root, {}, 'ask edit'), await below(root)]
    const stranger = await agent()
    const approval_id = await approvalOf(asking)
    expectKinds(
      [await decide(sibling.call, approval_id), await decide(stranger.call, approval_id)],
      'forbidden',
    )
    await isOpen(approval_id)
    expectKinds([await decide(root.call, approval_id)], 'ok')
    expect((await untilStatus(booted, asking.session_id, 'idle')).final_text).toBe('yes')
    await Promise.all([root, stranger].map(({ session_id }) => end(booted, session_id)))
  })

  test('is not decided with a token that the session minted, either', async () => {
    const root = await agent({ ...off, api_scope: 'admin' }, 'ask edit')
    const approval_id = await approvalOf(root)
    const minted = (await root.call('token_create', { name: 'self', scope: 'admin' })).result
    const twice = await withToken(booted, minted.token)
    const again = (await twice('token', { action: 'create', name: 'self', scope: 'admin' })).result
    expectKinds([await decide(root.call, approval_id), await decide(twice, approval_id)], 'forbidden')
    expectKinds([await decide(await withToken(booted, again.token), approval_id)], 'forbidden')
    await isOpen(approval_id)
    const admins = await withToken(booted, (await mint(booted, 'admin')).token)
    expectKinds([await decide(admins, approval_id)], 'ok')
    await end(booted, root.session_id)
  })
})

describe('a child', () => {
  const restricted = { autonomy_level: 'low', tools_allowed: ['Read', 'Bash'], tools_disallowed: ['Web'] }
  const wider = [
    { autonomy_level: 'medium' },
    { autonomy_level: 'high' },
    { tools_allowed: [] },
    { tools_allowed: ['Read', 'Write'] },
    { droid: 'forgetful' },
    { droid: 'shell' },
  ]
  const own = async (session_id: string) =>
    (
      await booted.query(
        'select autonomy_level, tools_allowed, tools_disallowed from sessions where id = $1',
        [session_id],
      )
    )[0]

  test('has no more autonomy and tools than its parent, by any kind of spawn', async () => {
    const root = await agent({ ...restricted, api_scope: 'admin' })
    const minted = (await root.call('token_create', { name: 'self', scope: 'admin' })).result
    const byToken = await withToken(booted, minted.token)
    const spawning = { action: 'spawn', project_id, prompt: 'say hello', new_session: true }
    for (const wish of wider)
      expectKinds(
        [
          await root.call('session', { ...spawning, ...wish }),
          await root.call.ask('session_message', { message: 'say hello', ...wish }),
          await byToken('session', { ...spawning, ...wish }),
          await byToken('session', { action: 'message', project_id, message: 'say hello', ...wish }),
        ],
        'forbidden',
      )
    // The controls: what it has by default, what is narrower, and what a token that is no session's may ask for.
    const same = await root.call.ask('session_message', { message: 'say hello' })
    expect(await own(same.result.session_id)).toEqual(restricted)
    const narrow = { autonomy_level: 'off', tools_allowed: ['Read'], tools_disallowed: ['Bash'] }
    const narrower = await byToken('session', { ...spawning, ...narrow })
    expect(await own(narrower.result.session_id)).toEqual({ ...narrow, tools_disallowed: ['Web', 'Bash'] })
    expect((await get(booted, narrower.result.session_id)).parent_session_id).toBe(root.session_id)
    for (const wish of wider) {
      const free = await booted.ok('session', { ...spawning, ...wish })
      expect(free.spawned).toBe(true)
      await end(booted, free.session_id)
    }
    await end(booted, root.session_id)
  })

  test('stays within the bounds of all above it, however deep', async () => {
    const root = await agent({ autonomy_level: 'medium' })
    const child = await below(root, { autonomy_level: 'low' })
    const spawning = { action: 'spawn', project_id, prompt: 'say hello', new_session: true }
    expectKinds([await child.call('session', { ...spawning, autonomy_level: 'medium' })], 'forbidden')
    expectKinds([await child.call('session', { ...spawning, autonomy_level: 'low' })], 'ok')
    expectKinds([await root.call('session', { ...spawning, autonomy_level: 'medium' })], 'ok')
    await end(booted, root.session_id)
  })
})

describe('a session with less autonomy', () => {
  test('sends no message to one with more, and does to one with as much', async () => {
    const [low, same, high] = await Promise.all([
      agent({ autonomy_level: 'low' }),
      agent({ autonomy_level: 'low' }),
      agent({ autonomy_level: 'high' }),
    ])
    const say = (from: Family, to: Family) =>
      from.call('session', { action: 'message', session_id: to.session_id, message: 'say steered' })
    expectKinds([await say(low, high)], 'forbidden')
    expectKinds([await say(low, same), await say(high, low), await say(high, high)], 'ok')
    expect((await get(booted, high.session_id)).final_text).not.toBe('steered')
    await Promise.all([low, same, high].map(({ session_id }) => end(booted, session_id)))
  })

  test('does not have a schedule spawn what it may not spawn itself', async () => {
    const timing = { name: 'loop', cron_expr: '@yearly', prompt: 'say hello', targets: [{ project_id }] }
    const { schedule_id } = await booted.ok('schedule', { action: 'create', ...timing })
    const [low, listed, high] = await Promise.all([
      agent({ autonomy_level: 'low' }),
      agent({ tools_disallowed: ['Web'] }),
      agent(),
    ])
    for (const { call } of [low, listed])
      expectKinds(
        [
          await call('schedule', { action: 'create', ...timing }),
          await call('schedule', { action: 'update', schedule_id, prompt: 'say steered' }),
        ],
        'forbidden',
      )
    expectKinds(
      [
        await high.call('schedule', { action: 'create', ...timing }),
        await high.call('schedule', { action: 'update', schedule_id, prompt: 'say on' }),
      ],
      'ok',
    )
    await Promise.all([low, listed, high].map(({ session_id }) => end(booted, session_id)))
  })
})
