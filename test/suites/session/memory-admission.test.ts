// Sessions share the memory of their container: those that do not fit wait, or an idle agent is hibernated for them.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import {
  completionOf,
  end,
  expectGapFree,
  get,
  history,
  processes,
  say,
  spawn,
  statusesOf,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
const made: string[] = []

beforeAll(async () => {
  booted = await boot({
    config: {
      droids: {
        scripted: { ...scriptedDroids.scripted, memory_mb: 200 },
        forgetful: { ...scriptedDroids.forgetful, memory_mb: 200 },
        huge: { ...scriptedDroids.scripted, memory_mb: 4000 },
      },
      hibernate_minutes: 0,
      reconcile_seconds: 1,
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
    },
  })
  // Two agents fit, a third does not.
  project_id = await booted.project({ droid: 'scripted', limits: { memory_mb: 500 } })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterAll(() => booted?.stop())
afterEach(async () => {
  for (const session_id of made.splice(0)) await end(booted, session_id)
})

const agents = () => processes(booted, project_id, /agent\.mjs/)

async function ask(prompt: string, more: object = {}): Promise<Answer> {
  const session = await spawn(booted, project_id, prompt, more)
  made.push(session.session_id)
  return session
}
/** One that keeps its process until it is answered. */
async function holder(): Promise<string> {
  const { session_id } = await ask('ask edit', { autonomy_level: 'off', wait_seconds: 0 })
  await untilStatus(booted, session_id, 'waiting')
  return session_id
}
const completed = (session_id: string, turn_id: string) =>
  until(async () => completionOf(await history(booted, session_id), turn_id), {
    deadline_ms: 20_000,
    what: `turn ${turn_id} ends`,
  })

describe('a session that does not fit into the memory of the container', () => {
  test('waits in order, with its place shown, and starts when another ends', async () => {
    const [first] = [await holder(), await holder()]
    const third = await ask('echo third', { wait_seconds: 0 })
    expect(third).toMatchObject({ status: 'queued', queue_position: 1, finished: false })
    expect(third.reason).toBe('waits for memory: needs 200 MiB, the container has 52 MiB left')
    const fourth = await ask('ask edit', { autonomy_level: 'off', wait_seconds: 0 })
    expect(fourth).toMatchObject({ status: 'queued', queue_position: 2 })
    const more = await say(booted, third.session_id, 'echo more', { wait_seconds: 0 })
    expect(more).toMatchObject({ status: 'queued', queue_position: 1 })
    const { sessions } = await booted.ok('session', { action: 'list', project_id, status: 'queued' })
    expect(sessions.map((it: Answer) => [it.session_id, it.queue_position])).toEqual([
      [third.session_id, 1],
      [fourth.session_id, 2],
    ])
    expect(await agents()).toHaveLength(2)

    await end(booted, first!)
    expect(await completed(third.session_id, third.turn_id)).toMatchObject({ final_text: 'third' })
    expect(await completed(third.session_id, more.turn_id)).toMatchObject({ final_text: 'more' })
    const events = await history(booted, third.session_id)
    expectGapFree(events, third.session_id)
    expect(events[0]).toMatchObject({ type: 'status', status: 'queued', queue_position: 1 })
    expect(statusesOf(events).slice(0, 3)).toEqual(['queued', 'starting', 'running'])
    // The third is idle now, and is hibernated for the fourth.
    await untilStatus(booted, fourth.session_id, 'waiting')
    expect(await get(booted, third.session_id)).toMatchObject({ status: 'idle', hibernated: true })
    expect(await agents()).toHaveLength(2)
  })

  test('gets the place of the agent that has been idle longest, which continues at the next message', async () => {
    const first = await ask('echo first')
    const second = await ask('echo second')
    const third = await ask('echo third')
    expect(third).toMatchObject({ status: 'idle', final_text: 'third', finished: true })
    expect(await get(booted, first.session_id)).toMatchObject({ status: 'idle', hibernated: true })
    expect(await get(booted, second.session_id)).toMatchObject({ status: 'idle', hibernated: false })
    expect(await agents()).toHaveLength(2)

    expect((await say(booted, first.session_id, 'history')).final_text).toContain('echo first')
    expect(await get(booted, second.session_id)).toMatchObject({ hibernated: true })
    expect(await get(booted, third.session_id)).toMatchObject({ hibernated: false })
    expect(await agents()).toHaveLength(2)
  })

  test('waits for an idle agent that cannot resume, which is not stopped', async () => {
    const [first, second] = [
      await ask('echo 1', { droid: 'forgetful' }),
      await ask('echo 2', { droid: 'forgetful' }),
    ]
    const third = await ask('echo third', { wait_seconds: 0 })
    expect(third).toMatchObject({ status: 'queued' })
    expect(await say(booted, first.session_id, 'echo still')).toMatchObject({ final_text: 'still' })
    await end(booted, second.session_id)
    expect(await completed(third.session_id, third.turn_id)).toMatchObject({ final_text: 'third' })
    expect(await get(booted, first.session_id)).toMatchObject({ status: 'idle', hibernated: false })
  })

  test('is refused if the container could never hold it', async () => {
    const count = async () =>
      (await booted.ok('session', { action: 'list', project_id, limit: 100 })).sessions.length
    const before = await count()
    const refused = await booted.fault('session', {
      action: 'spawn',
      project_id,
      prompt: 'echo never',
      droid: 'huge',
      new_session: true,
    })
    expect(refused).toMatchObject({
      kind: 'exhausted',
      message:
        'a session of droid "huge" needs 4000 MiB and the supervisor 48 MiB, the container has 500 MiB',
      hint: 'raise limits.memory_mb of the project, or lower droids.huge.memory_mb in the config',
    })
    expect(await count()).toBe(before)
  })

  test('still waits after the server was killed, and starts when there is room', async () => {
    const [first] = [await holder(), await holder()]
    const third = await ask('echo third', { wait_seconds: 0 })
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await get(booted, third.session_id)).toMatchObject({ status: 'queued', queue_position: 1 })
    await end(booted, first!)
    expect(await completed(third.session_id, third.turn_id)).toMatchObject({ final_text: 'third' })
  })

  test('can be cancelled, messaged again, and ended', async () => {
    const [first] = [await holder(), await holder()]
    const third = await ask('echo third', { wait_seconds: 0 })
    const fourth = await ask('echo fourth', { wait_seconds: 0 })
    expect(await booted.ok('session', { action: 'cancel', session_id: third.session_id })).toMatchObject({
      status: 'idle',
      queue_position: null,
    })
    expect(await completed(third.session_id, third.turn_id)).toMatchObject({ stop_reason: 'cancelled' })
    expect(await get(booted, fourth.session_id)).toMatchObject({ queue_position: 1 })
    expect(await end(booted, fourth.session_id)).toMatchObject({ status: 'completed' })
    const again = await say(booted, third.session_id, 'echo again', { wait_seconds: 0 })
    expect(again).toMatchObject({ status: 'queued', queue_position: 1 })
    await end(booted, first!)
    expect(await completed(third.session_id, again.turn_id)).toMatchObject({ final_text: 'again' })
  })
})

test('a higher limit applies when the container is recreated', async () => {
  const other = await booted.project({ droid: 'scripted', limits: { memory_mb: 300 } })
  await booted.ok('container', { action: 'start', project_id: other })
  await putAgent(booted, other)
  const more = { autonomy_level: 'off', wait_seconds: 0 }
  const first = await spawn(booted, other, 'ask edit', more)
  await untilStatus(booted, first.session_id, 'waiting')
  await booted.ok('project', { action: 'update', project_id: other, limits: { memory_mb: 500 } })
  const second = await spawn(booted, other, 'echo second', { wait_seconds: 0 })
  expect(second).toMatchObject({ status: 'queued' })
  expect(second.reason).toContain('the container has 52 MiB left; container start with recreate')
  await booted.ok('container', { action: 'start', project_id: other, recreate: true })
  expect(await completed(second.session_id, second.turn_id)).toMatchObject({ final_text: 'second' })
  const third = await spawn(booted, other, 'echo third')
  expect(third).toMatchObject({ final_text: 'third' })
  expect(await get(booted, second.session_id)).toMatchObject({ hibernated: false })
})

test('what the processes of a session take is measured and shown', async () => {
  const { session_id } = await ask('echo here')
  const { memory_mb } = await until(
    async () => {
      const session = await get(booted, session_id)
      return session.memory_mb.measured > 0 && session
    },
    { what: 'it is measured' },
  )
  expect(memory_mb.expected).toBe(200)
  expect(memory_mb.measured).toBeGreaterThan(5)
  expect(memory_mb.measured).toBeLessThan(200)
})
