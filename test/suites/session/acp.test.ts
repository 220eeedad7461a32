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
  textOf,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, containerOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({
    config: { droids: scriptedDroids, limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } },
  })
  project_id = await booted.project({ droid: 'scripted' })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterAll(() => booted?.stop())

const ask = (prompt: string, more: object = {}) => spawn(booted, project_id, prompt, more)
const agents = () => processes(booted, project_id, /agent\.mjs/)
async function finish(session: Answer): Promise<void> {
  await end(booted, session.session_id)
}

describe('an agent', () => {
  test('answers a prompt, and remembers within its session', async () => {
    const session = await ask('echo hello there')
    expect(session).toMatchObject({
      droid: 'scripted',
      status: 'idle',
      final_text: 'hello there',
      stop_reason: 'end_turn',
    })
    expect((await say(booted, session.session_id, 'history')).final_text).toContain('echo hello there')
    const events = await history(booted, session.session_id)
    expectGapFree(events, session.session_id)
    expect(events.find((event) => event.agent_session_id)).toMatchObject({ type: 'status', resumed: false })
    expect(events.filter((event) => event.type === 'message').map((event) => event.role)).toEqual([
      'user',
      'assistant',
      'user',
      'assistant',
    ])
    await finish(session)
    expect(await agents()).toEqual([])
  })

  test('that takes no level of thinking is not asked for one as if it did', async () => {
    const { session_id } = await ask('echo never', { reasoning_level: 'high' })
    const { reason } = await untilStatus(booted, session_id, 'failed')
    expect(reason).toContain('the agent does not support reasoning_level for this model: omit "high"')
    await until(async () => (await agents()).length === 0, { what: 'it is gone' })
  })

  test('is heard while it speaks, in few events', async () => {
    const session = await ask('slow 200 5', { wait_seconds: 60 })
    const events = await history(booted, session.session_id)
    const words = Array.from({ length: 200 }, (_, i) => `word${i + 1} `).join('')
    expect(textOf(events, 'assistant')).toBe(words)
    const deltas = events.filter((event) => event.type === 'delta')
    expect(deltas.length).toBeGreaterThan(3)
    expect(deltas.length).toBeLessThan(120)
    await finish(session)
  })

  test('thinks, plans, reports what it used, and what we do not know is kept', async () => {
    const session = await ask('think')
    const events = await history(booted, session.session_id)
    const one = (type: string) => events.find((event) => event.type === type)
    expect(one('thought')?.text).toBe('hmm')
    expect(one('plan')?.entries).toEqual([{ content: 'do it', priority: 'high', status: 'pending' }])
    expect(one('usage')).toMatchObject({ used: 10, size: 100 })
    expect(one('update')).toMatchObject({ update: { sessionUpdate: 'brand_new_kind', anything: 1 } })
    await finish(session)
  })

  test('uses tools, and its usage is summed per session, tree and project', async () => {
    const session = await ask('tools', { api_scope: `project:${project_id}:ro` })
    expect(session.final_text).toContain('oubliette_session')
    const used = await say(
      booted,
      session.session_id,
      `tool oubliette_project {"action":"get","project_id":"${project_id}"}`,
    )
    expect(JSON.parse(used.final_text)).toMatchObject({ project_id })
    const events = await history(booted, session.session_id)
    const called = events.find((event) => event.type === 'tool_call')
    expect(called).toMatchObject({ title: 'oubliette_project' })
    expect(events.find((event) => event.type === 'tool_result')).toMatchObject({
      tool_call_id: called?.tool_call_id,
      status: 'completed',
    })
    const refused = await say(
      booted,
      session.session_id,
      `tool oubliette_session {"action":"spawn","project_id":"${project_id}","prompt":"x"}`,
    )
    expect(refused.final_text).toContain('forbidden')
    const { usage } = await get(booted, session.session_id)
    const said = events
      .filter((event) => event.type === 'message' && event.role === 'user')
      .map((event) => String(event.text).length)
    expect(usage.output_tokens).toBe(3)
    expect(usage.input_tokens).toBeGreaterThan(said.reduce((sum, length) => sum + length, 0))
    const limits = await booted.ok('config_limits', { project_id, session_id: session.session_id })
    expect(limits.session.tree).toMatchObject({ sessions: 1, output_tokens: 3 })
    expect(limits.used.output_tokens).toBeGreaterThanOrEqual(3)
    await finish(session)
  })
})

describe('an agent that misbehaves', () => {
  test('is cancelled in the middle of a turn and stays', async () => {
    const session = await ask('slow 1000 20', { wait_seconds: 0 })
    await until(
      async () => textOf(await history(booted, session.session_id), 'assistant').includes('word3'),
      { what: 'it speaks' },
    )
    await booted.ok('session', { action: 'cancel', session_id: session.session_id })
    expect((await untilStatus(booted, session.session_id, 'idle')).stop_reason).toBe('cancelled')
    expect((await say(booted, session.session_id, 'echo on')).final_text).toBe('on')
    await finish(session)
  })

  test('crashes: the reason is told, and the next message takes the conversation up again', async () => {
    const session = await ask('echo remember me')
    const crashed = await say(booted, session.session_id, 'crash 3')
    const failed = await untilStatus(booted, session.session_id, 'failed')
    expect(failed.reason).toContain('exit code 3')
    expect(failed.reason).toContain('scripted crash')
    const events = await history(booted, session.session_id)
    expect(completionOf(events, crashed.turn_id)).toMatchObject({ stop_reason: 'error' })
    expect(events.at(-1)).toMatchObject({ type: 'status', status: 'failed', exit_code: 3 })
    const again = await say(booted, session.session_id, 'history')
    expect(again).toMatchObject({ status: 'idle', stop_reason: 'end_turn' })
    expect(again.final_text).toContain('echo remember me')
    const after = await history(booted, session.session_id)
    expectGapFree(after, session.session_id)
    expect(after.findLast((event) => event.agent_session_id)).toMatchObject({ resumed: true })
    // What it said before is not told a second time.
    expect(textOf(after, 'assistant').match(/remember me/g)).toHaveLength(2)
    await finish(session)
  })

  test('hangs: cancel ends it after its grace, and the next message works', { timeout: 60_000 }, async () => {
    const session = await ask('hang', { wait_seconds: 0 })
    await until(
      async () => textOf(await history(booted, session.session_id), 'assistant').includes('hanging'),
      { what: 'it hangs' },
    )
    await booted.ok('session', { action: 'cancel', session_id: session.session_id })
    await until(async () => (await get(booted, session.session_id)).stop_reason === 'cancelled', {
      deadline_ms: 30_000,
      what: 'its turn is over',
    })
    expect((await say(booted, session.session_id, 'echo back')).final_text).toBe('back')
    await finish(session)
    expect(await agents()).toEqual([])
  })

  test('hangs: end does not wait for it', { timeout: 60_000 }, async () => {
    const session = await ask('hang', { wait_seconds: 0 })
    await until(
      async () => textOf(await history(booted, session.session_id), 'assistant').includes('hanging'),
      { what: 'it hangs' },
    )
    expect((await end(booted, session.session_id)).status).toBe('completed')
    expect(await agents()).toEqual([])
  })

  test('floods: nothing is lost, and it is few events', { timeout: 90_000 }, async () => {
    const session = await ask('flood 20000', { wait_seconds: 60 })
    expect(session.finished).toBe(true)
    const events = await history(booted, session.session_id)
    expect(textOf(events, 'assistant')).toBe(Array.from({ length: 20_000 }, (_, i) => `${i + 1}\n`).join(''))
    expect(events.length).toBeLessThan(2000)
    await finish(session)
  })

  test('writes garbage and a huge line: both are passed over', { timeout: 60_000 }, async () => {
    const session = await ask('garbage')
    expect(session.final_text).toBe('after the garbage')
    const huge = await say(booted, session.session_id, `huge ${40 * 1024 * 1024}`, { wait_seconds: 50 })
    expect(huge.final_text).toBe('after the huge line')
    await finish(session)
  })

  test('is not there: the session fails with the reason', async () => {
    const session = await ask('hello', { droid: 'missing' })
    expect(session).toMatchObject({ status: 'failed', finished: true })
    expect(session.reason).toContain('/no/such/agent')
  })

  test('is killed: the reason is told, and the next message works', async () => {
    const session = await ask('slow 1000 20', { wait_seconds: 0 })
    await until(async () => (await agents()).length > 0, { what: 'it runs' })
    await booted.exec(
      project_id,
      'pkill -9 -f agent.mjs || kill -9 $(grep -l agent.mjs /proc/[0-9]*/cmdline | cut -d/ -f3)',
    )
    const failed = await untilStatus(booted, session.session_id, 'failed')
    expect(failed.reason).toContain('SIGKILL')
    expect((await say(booted, session.session_id, 'echo alive')).final_text).toBe('alive')
    await finish(session)
  })
})

describe('after the container was restarted', () => {
  test('a session says so, and goes on where the agent can', { timeout: 90_000 }, async () => {
    const session = await ask('echo before')
    const blank = await ask('echo nothing kept', { droid: 'forgetful' })
    await (await containerOf(booted.server, project_id)).kill()
    for (const { session_id } of [session, blank]) {
      const failed = await untilStatus(booted, session_id, 'failed', 30_000)
      expect(failed.reason).toMatch(/container/)
    }
    const again = await say(booted, session.session_id, 'history')
    expect(again.final_text).toContain('echo before')
    expect(
      (await history(booted, session.session_id)).findLast((event) => event.agent_session_id),
    ).toMatchObject({ resumed: true })
    const anew = await say(booted, blank.session_id, 'history')
    expect(anew.final_text).not.toContain('nothing kept')
    const events = await history(booted, blank.session_id)
    expectGapFree(events, blank.session_id)
    expect(events.findLast((event) => event.agent_session_id)).toMatchObject({ resumed: false })
    await finish(session)
    await finish(blank)
  })
})
