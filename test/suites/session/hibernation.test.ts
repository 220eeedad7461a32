// Idle agents that are stopped and started again, with a scripted agent that remembers its conversations on disk.
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/scripted-agent.ts'
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
} from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, containerOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({
    config: {
      droids: scriptedDroids,
      hibernate_minutes: 0.03,
      reconcile_seconds: 1,
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
    },
  })
  project_id = await booted.project({ droid: 'scripted' })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterAll(() => booted?.stop())

const agents = () => processes(booted, project_id, /agent\.mjs/)
const hibernated = (session_id: string, deadline_ms = 20_000): Promise<Answer> =>
  until(
    async () => {
      const session = await get(booted, session_id)
      return session.hibernated && session
    },
    { deadline_ms, what: `session ${session_id} is hibernated` },
  )

/** As the sweep does it, without waiting for the time. */
const tellToHibernate = (session_id: string) =>
  booted.query(
    `insert into commands (id, session_id, project_id, kind, payload) values ($1, $2, $3, 'hibernate', '{}')`,
    [`cmd_${randomBytes(10).toString('hex')}`, session_id, project_id],
  )

describe('an idle agent', () => {
  test('is stopped after hibernate_minutes, and the next message resumes it with its memory and its key', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo remember the milk')
    const key = (await say(booted, session_id, 'env OUBLIETTE_API_KEY')).final_text
    expect(key).toMatch(/\S{20}/)
    expect(await agents()).toHaveLength(1)

    expect(await hibernated(session_id)).toMatchObject({ status: 'idle', ended_at: null, reason: null })
    expect(await agents()).toEqual([])

    const woken = await say(booted, session_id, 'history')
    expect(woken).toMatchObject({ session_id, status: 'idle', hibernated: false, finished: true })
    expect(woken.final_text).toContain('echo remember the milk')
    expect((await say(booted, session_id, 'env OUBLIETTE_API_KEY')).final_text).toBe(key)

    const events = await history(booted, session_id)
    expectGapFree(events, session_id)
    const stopped = events.findIndex((event) => event.hibernated === true)
    expect(events[stopped]).toMatchObject({ type: 'status', status: 'idle' })
    expect(statusesOf(events.slice(stopped)).slice(0, 3)).toEqual(['idle', 'running', 'idle'])
    expect(
      events.slice(stopped).find((event) => event.type === 'status' && event.status === 'running'),
    ).toMatchObject({
      resumed: true,
    })
    expect((await end(booted, session_id)).status).toBe('completed')
  })

  test('that cannot resume is left running, and so is one with a turn', async () => {
    const forgetful = await spawn(booted, project_id, 'echo one', { droid: 'forgetful' })
    const busy = await spawn(booted, project_id, 'slow 400 20', { wait_seconds: 0 })
    const calm = await spawn(booted, project_id, 'echo two')
    await tellToHibernate(busy.session_id)
    await hibernated(calm.session_id)
    expect(await get(booted, forgetful.session_id)).toMatchObject({ status: 'idle', hibernated: false })
    expect(await get(booted, busy.session_id)).toMatchObject({ status: 'running', hibernated: false })
    const whole = await until(
      async () => completionOf(await history(booted, busy.session_id), busy.turn_id),
      { deadline_ms: 30_000, what: 'the turn ends' },
    )
    expect(whole).toMatchObject({ stop_reason: 'end_turn' })
    for (const { session_id } of [forgetful, busy, calm]) await end(booted, session_id)
    expect(await agents()).toEqual([])
  })

  test('answers a message that comes while it is being stopped', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo 0')
    for (let round = 1; round <= 5; round++) {
      await tellToHibernate(session_id)
      expect(await say(booted, session_id, `echo ${round}`)).toMatchObject({
        final_text: `${round}`,
        stop_reason: 'end_turn',
      })
    }
    const told = (await say(booted, session_id, 'history')).final_text as string
    expect(JSON.parse(told)).toEqual(
      expect.arrayContaining([0, 1, 2, 3, 4, 5].map((round) => `echo ${round}`)),
    )
    expect((await history(booted, session_id)).some((event) => event.hibernated === true)).toBe(true)
    await end(booted, session_id)
  })

  test('is ended also if that is asked for while it is being stopped', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo short')
    await tellToHibernate(session_id)
    expect(await end(booted, session_id)).toMatchObject({ status: 'completed', hibernated: false })
    expect(await agents()).toEqual([])
  })

  test('says so in its reason when its memory is gone, and answers all the same', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo lost')
    await hibernated(session_id)
    await booted.exec(project_id, 'rm -rf ~/.acp-agent')
    const woken = await say(booted, session_id, 'echo here')
    expect(woken).toMatchObject({ final_text: 'here', status: 'idle' })
    expect(woken.reason).toContain('failed to resume the conversation')
    await end(booted, session_id)
  })
})

describe('a hibernated session', () => {
  test('stays so when its container is stopped, killed or made anew, and wakes in the next one', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo kept')
    await hibernated(session_id)
    await booted.ok('container', { action: 'stop', project_id })
    expect(await get(booted, session_id)).toMatchObject({ status: 'idle', hibernated: true })
    await booted.ok('container', { action: 'start', project_id })
    await (await containerOf(booted.server, project_id)).kill()
    await until(async () => (await (await containerOf(booted.server, project_id)).inspect()).State.Running, {
      deadline_ms: 20_000,
      what: 'the container is brought back',
    })
    await booted.ok('container', { action: 'start', project_id, recreate: true })
    expect(await get(booted, session_id)).toMatchObject({ status: 'idle', hibernated: true })
    expect((await say(booted, session_id, 'history')).final_text).toContain('echo kept')
    await end(booted, session_id)
  })

  test('is ended and cancelled without being started', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo rest')
    await hibernated(session_id)
    expect(await booted.ok('session', { action: 'cancel', session_id })).toMatchObject({
      status: 'idle',
      hibernated: true,
    })
    expect(await end(booted, session_id)).toMatchObject({ status: 'completed', hibernated: false })
    expect(await agents()).toEqual([])
  })
})

describe('a server that is killed', () => {
  test('while it hibernates and wakes sessions loses no message and leaves no process', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo 0')
    const pending = async () =>
      (await booted.query('select id from commands where session_id = $1', [session_id])).length > 0
    for (let round = 1; round <= 3; round++) {
      await tellToHibernate(session_id)
      await until(async () => !(await pending()) || round > 1, { what: 'the command is under way' })
      await booted.server.restart('SIGKILL')
      await booted.reconnect()
      await hibernated(session_id)
      expect(await agents()).toEqual([])

      const message = { action: 'message', session_id, message: `echo ${round}`, wait_seconds: 0 }
      const { turn_id } = await booted.ok('session', message)
      await booted.server.restart('SIGKILL')
      await booted.reconnect()
      const ended = await until(async () => completionOf(await history(booted, session_id), turn_id), {
        deadline_ms: 30_000,
        what: 'the turn ends',
      })
      expect(ended).toMatchObject({ final_text: `${round}`, stop_reason: 'end_turn' })
    }
    const said = JSON.parse((await say(booted, session_id, 'history')).final_text) as string[]
    expect(said.filter((text) => text.startsWith('echo '))).toEqual(['echo 0', 'echo 1', 'echo 2', 'echo 3'])
    const events = await history(booted, session_id)
    expectGapFree(events, session_id)
    expect(new Set(statusesOf(events))).toEqual(new Set(['starting', 'running', 'idle']))
    await end(booted, session_id)
    expect(await agents()).toEqual([])
  }, 120_000)
})
