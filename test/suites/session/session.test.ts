import { afterAll, beforeAll, describe, expect, test } from 'vitest'
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
  textOf,
  untilSaid,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

describe('a shell session', () => {
  test('runs its prompt as a script, and its events record all of it', async () => {
    const session = await spawn(booted, project_id, 'echo one; echo two >&2; echo three; pwd')
    expect(session).toMatchObject({
      status: 'idle',
      finished: true,
      spawned: true,
      turns: 1,
      stop_reason: 'end_turn',
    })
    expect(session.final_text).toBe('one\nthree\n/workspaces/default\n')
    const events = await history(booted, session.session_id)
    expectGapFree(events, session.session_id)
    expect(session.last_index).toBe(events.length - 1)
    expect(statusesOf(events)).toEqual(['starting', 'running', 'idle'])
    expect(events[1]).toMatchObject({ type: 'message', role: 'user', turn_id: session.turn_id })
    expect(completionOf(events, session.turn_id)).toMatchObject({ exit_code: 0, stop_reason: 'end_turn' })
    expect(textOf(events, 'stderr')).toBe('two\n')
  })

  test('keeps the order of stdout and stderr when they come one after the other', async () => {
    const script = 'for i in 1 2 3 4 5; do echo out$i; sleep 0.08; echo err$i >&2; sleep 0.08; done'
    const { session_id } = await spawn(booted, project_id, script)
    const said = (await history(booted, session_id)).filter((event) => event.type === 'delta')
    const wanted = [1, 2, 3, 4, 5].flatMap((i) => [`stdout out${i}\n`, `stderr err${i}\n`])
    expect(said.map((event) => `${event.stream} ${event.text}`)).toEqual(wanted)
  })

  test('ends its turn with the exit code of the script, and takes the next', async () => {
    const session = await spawn(booted, project_id, 'echo before; exit 42')
    expect(session).toMatchObject({ status: 'idle', stop_reason: 'error' })
    const completion = completionOf(await history(booted, session.session_id), session.turn_id)
    expect(completion).toMatchObject({ exit_code: 42, stop_reason: 'error' })
    expect((await say(booted, session.session_id, 'echo still here')).final_text).toBe('still here\n')
  })

  test('queues messages that arrive while it is busy, and runs them in order', async () => {
    const first = await spawn(booted, project_id, 'echo 0; until [ -e go ]; do sleep 0.05; done', {
      wait_seconds: 0,
    })
    await untilSaid(booted, first.session_id, '0\n')
    const turns = []
    for (const n of [1, 2, 3, 4, 5])
      turns.push(await say(booted, first.session_id, `echo ${n}`, { wait_seconds: 0 }))
    expect(turns.every((turn) => turn.finished === false && turn.spawned === false)).toBe(true)
    expect((await get(booted, first.session_id)).status).toBe('running')
    await booted.exec(project_id, 'touch go')
    await until(async () => (await get(booted, first.session_id)).turns === 6, { what: 'all turns are done' })
    const events = await history(booted, first.session_id)
    expect(textOf(events)).toBe('0\n1\n2\n3\n4\n5\n')
    const done = events.filter((event) => event.type === 'completion').map((event) => event.turn_id)
    expect(done).toEqual([first, ...turns].map((turn) => turn.turn_id))
    await booted.exec(project_id, 'rm go')
  })

  test('cancel stops the running turn and everything it started, and the session stays', async () => {
    const session = await spawn(booted, project_id, 'sleep 4711 & echo going; wait', { wait_seconds: 0 })
    await untilSaid(booted, session.session_id, 'going')
    await booted.ok('session', { action: 'cancel', session_id: session.session_id })
    const idle = await untilStatus(booted, session.session_id, 'idle')
    expect(idle.stop_reason).toBe('cancelled')
    expect(await processes(booted, project_id, /sleep 4711/)).toEqual([])
    expect((await say(booted, session.session_id, 'echo on')).final_text).toBe('on\n')
  })

  test('end kills the whole process tree, also what called setsid and what ignores SIGTERM', async () => {
    const script = `setsid sleep 4801 & (trap '' TERM; sleep 4802) & (setsid bash -c 'sleep 4803 & disown; sleep 4804' &)
      sleep 4805 & echo going; wait`
    const session = await spawn(booted, project_id, script, { wait_seconds: 0 })
    await untilSaid(booted, session.session_id, 'going')
    await until(async () => (await processes(booted, project_id, /sleep 480[1-5]/)).length === 5, {
      what: 'all run',
    })
    const ended = await end(booted, session.session_id)
    expect(ended).toMatchObject({ status: 'completed', reason: 'ended', ended: [session.session_id] })
    expect(await processes(booted, project_id, /sleep 480[1-5]/)).toEqual([])
    const events = await history(booted, session.session_id)
    expect(events.at(-1)).toMatchObject({ type: 'status', status: 'completed' })
    expect(completionOf(events, session.turn_id)?.stop_reason).toBe('cancelled')
    // Once more is no error, and nothing is said twice.
    expect((await end(booted, session.session_id)).status).toBe('completed')
    expect(await history(booted, session.session_id)).toHaveLength(events.length)
    const refused = await booted.fault('session', {
      action: 'message',
      session_id: session.session_id,
      message: 'x',
    })
    expect(refused.kind).toBe('conflict')
  })

  test('a turn that is queued when the session ends gets a completion of its own', async () => {
    const session = await spawn(booted, project_id, 'echo going; sleep 60', { wait_seconds: 0 })
    await untilSaid(booted, session.session_id, 'going')
    const queued = await say(booted, session.session_id, 'echo never', { wait_seconds: 0 })
    await end(booted, session.session_id)
    const events = await history(booted, session.session_id)
    expect(completionOf(events, queued.turn_id)?.stop_reason).toBe('not_run')
    expect(textOf(events)).toBe('going\n')
  })

  test('text of any kind arrives unchanged', async () => {
    const script = `printf 'no newline'; printf '\\n\\ttab \\033[1mbold\\033[0m "quotes" \\\\ back\\n'; echo 'äöü 🦀 — 漢字'; printf '\\377\\n'; printf 'a\\0b\\n'`
    const { session_id } = await spawn(booted, project_id, script)
    expect(textOf(await history(booted, session_id))).toBe(
      'no newline\n\ttab \x1b[1mbold\x1b[0m "quotes" \\ back\näöü 🦀 — 漢字\n\ufffd\na\ufffdb\n',
    )
  })
})

describe('waiting', () => {
  test('answers when the turn is over, with progress on the way', async () => {
    const told: string[] = []
    const began = performance.now()
    const result = await booted.client().client.callTool(
      {
        name: 'session',
        arguments: {
          action: 'spawn',
          project_id,
          new_session: true,
          prompt: 'for i in 1 2 3; do echo step$i; sleep 0.3; done',
          wait_seconds: 30,
        },
      },
      { onprogress: ({ message }) => void told.push(message ?? '') },
    )
    expect(performance.now() - began).toBeGreaterThan(800)
    expect(result.structuredContent).toMatchObject({ finished: true, status: 'idle' })
    const steps = told.filter((message) => message.startsWith('step'))
    expect(steps).toEqual(['step1\n', 'step2\n', 'step3\n'])
  })

  test('reports that the turn is still running when the time is over', async () => {
    const began = performance.now()
    const session = await spawn(booted, project_id, 'sleep 60', { wait_seconds: 1 })
    expect(session).toMatchObject({ finished: false, status: 'running' })
    expect(performance.now() - began).toBeLessThan(8000)
    await end(booted, session.session_id)
  })
})
