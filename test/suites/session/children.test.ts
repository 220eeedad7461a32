import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  type Event,
  end,
  expectGapFree,
  get,
  history,
  processes,
  say,
  spawn,
  textOf,
  untilSaid,
} from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({
    config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000, max_agents_per_session: 30 } },
  })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const call = (tool: string, args: object) =>
  `oubliette-client call ${tool} '${JSON.stringify(args).replaceAll("'", `'\\''`)}'`
const child = (message: string, more: object = {}) =>
  call('session_message', { message, wait_seconds: 20, ...more })
/** What `oubliette-client call` printed as the last line. */
const answered = (session: Answer) =>
  JSON.parse(String(session.final_text).trim().split('\n').at(-1)!) as Answer
const listed = async (filter: object): Promise<Answer[]> =>
  (await booted.ok('session', { action: 'list', limit: 200, ...filter })).sessions

describe('a child', () => {
  test('is an ordinary session below the one that spawned it', async () => {
    const root = await spawn(booted, project_id, child(`${child('echo deepest')} > /dev/null; echo middle`))
    const middle = answered(root)
    expect(middle).toMatchObject({ status: 'idle', final_text: 'middle\n', depth: 1, finished: true })
    expect(middle).toMatchObject({ parent_session_id: root.session_id, root_session_id: root.session_id })
    const [deepest] = await listed({ project_id, parent_session_id: middle.session_id })
    expect(deepest).toMatchObject({ depth: 2, final_text: 'deepest\n', root_session_id: root.session_id })
    expect(await get(booted, middle.session_id)).toMatchObject({
      workspace_id: root.workspace_id,
      created_by: root.session_id,
    })
  })

  test('is messaged and read by its parent', async () => {
    const root = await spawn(
      booted,
      project_id,
      `id=$(${child('echo one')} | sed 's/.*"session_id":"\\([^"]*\\)".*/\\1/')
      oubliette-client call session_message '{"message":"echo two","session_id":"'$id'","wait_seconds":20}' >/dev/null
      oubliette-client call session_events '{"session_id":"'$id'"}'`,
    )
    const { events, status } = answered(root)
    expect(status).toBe('idle')
    expect(textOf(events)).toBe('one\ntwo\n')
  })

  test('and its parent lie in one order with include_children', async () => {
    const root = await spawn(booted, project_id, `echo a; ${child(child('echo c'))} >/dev/null; echo e`)
    const seen: (Event & { position: number })[] = []
    for (let since_index = -1; ; ) {
      const page = await booted.ok('session', {
        action: 'events',
        session_id: root.session_id,
        include_children: true,
        max_events: 5,
        since_index,
      })
      seen.push(...page.events)
      since_index = page.last_index
      if (!page.has_more) break
    }
    const positions = seen.map((event) => event.position)
    expect(positions).toEqual([...new Set(positions)].sort((a, b) => a - b))
    const sessions = Map.groupBy(seen, (event) => event.session_id)
    expect(sessions.size).toBe(3)
    for (const [session_id, events] of sessions) expectGapFree(events, session_id)
    const first = (text: string) => seen.findIndex((event) => event.text === text)
    expect(first('a\n')).toBeLessThan(first('c\n'))
    expect(first('c\n')).toBeLessThan(first('e\n'))
  })

  test('belongs to its parent: other sessions of the project do not exist for it', async () => {
    const other = await spawn(booted, project_id, 'echo private')
    for (const attempt of [
      call('session_events', { session_id: other.session_id }),
      call('session_message', { session_id: other.session_id, message: 'echo in' }),
    ]) {
      const refused = answered(await spawn(booted, project_id, attempt))
      expect(refused.error).toMatchObject({ kind: 'not_found' })
    }
    expect((await get(booted, other.session_id)).turns).toBe(1)
  })

  test('gets no more rights than its parent has', async () => {
    const wanted = child('true', { api_scope: `project:${project_id}` })
    expect(answered(await spawn(booted, project_id, wanted)).error).toMatchObject({ kind: 'forbidden' })
    const reader = { api_scope: `project:${project_id}:ro` }
    expect(answered(await spawn(booted, project_id, wanted, reader)).error).toMatchObject({
      kind: 'forbidden',
    })
    const holder = { api_scope: `project:${project_id}` }
    expect(answered(await spawn(booted, project_id, wanted, holder))).toMatchObject(holder)
    const refused = await booted.fault('session', {
      action: 'spawn',
      project_id,
      prompt: 'x',
      new_session: true,
      api_scope: 'nonsense',
    })
    expect(refused.kind).toBe('invalid')
  })

  test('a key ends with its session', async () => {
    const session = await spawn(booted, project_id, 'cp /proc/self/environ environ; echo kept')
    const use = `export $(tr '\\0' '\\n' < environ | grep OUBLIETTE_API_KEY); /opt/oubliette/oubliette-client call session_message '{"message":"true"}'`
    await end(booted, session.session_id)
    const { stdout, exit_code } = await booted.exec(project_id, use)
    expect(exit_code).toBe(1)
    expect(JSON.parse(stdout).error.kind).toBe('unauthenticated')
  })

  test('ends with its parent, in any state', async () => {
    const script = `${child(`${child('sleep 4901', { wait_seconds: 0 })} >/dev/null; sleep 4902`, { wait_seconds: 0 })}; sleep 4903`
    const root = await spawn(booted, project_id, script, { wait_seconds: 0 })
    await until(async () => (await processes(booted, project_id, /sleep 490[1-3]/)).length >= 3, {
      what: 'the tree runs',
    })
    const { ended } = await end(booted, root.session_id)
    expect(ended).toHaveLength(3)
    expect(await processes(booted, project_id, /sleep 490[1-3]/)).toEqual([])
    for (const session_id of ended) expect((await get(booted, session_id)).status).toBe('completed')
  })
})

describe('a limit', () => {
  const limited = async (limits: object, fields: object = {}) => {
    const own = await booted.project({ limits, ...fields })
    await booted.ok('container', { action: 'start', project_id: own })
    return own
  }
  const count = async (own: string) => (await listed({ project_id: own })).length

  test('of depth refuses the child below it', async () => {
    const own = await limited({ max_recursion_depth: 1 })
    const root = await spawn(booted, own, child(child('echo too deep')))
    expect(JSON.parse(answered(root).final_text).error).toMatchObject({
      kind: 'exhausted',
      message: expect.stringContaining('deep'),
    })
    expect(await count(own)).toBe(2)
  })

  test('of the tree counts the root and all below it', async () => {
    const own = await limited({ max_agents_per_session: 3 })
    const root = await spawn(booted, own, `for i in 1 2 3 4; do ${child('true')} | cut -c1-40; done`)
    expect(String(root.final_text).match(/"kind":"exhausted"/g)).toHaveLength(2)
    expect(await count(own)).toBe(3)
    // Another tree has its own.
    expect((await spawn(booted, own, 'echo fine')).final_text).toBe('fine\n')
  })

  test('of active sessions and of the rate refuses, and nothing is started', async () => {
    const own = await limited({ max_active_sessions: 2, max_spawns_per_minute: 4 })
    const [first] = [await spawn(booted, own, 'true'), await spawn(booted, own, 'true')]
    const refuse = () =>
      booted.fault('session', {
        action: 'spawn',
        project_id: own,
        prompt: 'touch started',
        new_session: true,
      })
    expect(await refuse()).toMatchObject({ kind: 'exhausted', message: expect.stringContaining('active') })
    await end(booted, first!.session_id)
    const third = await spawn(booted, own, 'true')
    await end(booted, third.session_id)
    const fourth = await spawn(booted, own, 'true')
    await end(booted, fourth.session_id)
    expect(await refuse()).toMatchObject({ kind: 'exhausted', message: expect.stringContaining('minute') })
    expect((await booted.exec(own, 'ls')).stdout).not.toContain('started')
    expect(await count(own)).toBe(4)
    const { used, limits } = await booted.ok('config_limits', { project_id: own })
    expect(used).toMatchObject({ sessions: 4, active_sessions: 1, spawns_last_minute: 4 })
    expect(limits).toMatchObject({ max_active_sessions: 2, max_spawns_per_minute: 4 })
  })

  test('holds when many ask at the same moment', async () => {
    const own = await limited({ max_active_sessions: 5 })
    const attempts = await Promise.all(
      Array.from({ length: 40 }, () =>
        booted
          .client()
          .call('session', { action: 'spawn', project_id: own, prompt: 'sleep 60', new_session: true }),
      ),
    )
    const refused = attempts.filter((attempt) => attempt.is_error)
    expect(refused).toHaveLength(35)
    expect(new Set(refused.map(({ structured }) => (structured.error as { kind: string }).kind))).toEqual(
      new Set(['exhausted']),
    )
    expect(await count(own)).toBe(5)
  })
})

describe('a spawn bomb', () => {
  test('of 10,000 attempts yields what is allowed, and one end ends it all', {
    timeout: 180_000,
  }, async () => {
    const allowed = 12
    const own = await booted.project({ limits: { max_agents_per_session: allowed, max_recursion_depth: 2 } })
    await booted.ok('container', { action: 'start', project_id: own })
    const content = await readFile(join(import.meta.dirname, '../../fixtures/attacks/spawn-bomb.mjs'), 'utf8')
    await booted.ok('workspace', { action: 'write_file', project_id: own, path: 'bomb.mjs', content })
    const root = await spawn(booted, own, '/opt/oubliette/node bomb.mjs 10000 20; sleep 600', {
      wait_seconds: 0,
    })
    const began = performance.now()
    await untilSaid(booted, root.session_id, '}', 150_000)
    const seconds = (performance.now() - began) / 1000
    const outcomes = JSON.parse(textOf(await history(booted, root.session_id)))
    expect(outcomes).toEqual({ spawned: allowed - 1, exhausted: 10_000 - (allowed - 1) })
    expect(await listed({ project_id: own })).toHaveLength(allowed)
    await until(async () => (await processes(booted, own, /^sleep 600/)).length === allowed, {
      what: 'all of them run',
    })
    const from = performance.now()
    const { ended } = await end(booted, root.session_id)
    const ms = performance.now() - from
    expect(ended).toHaveLength(allowed)
    for (const session of await listed({ project_id: own })) expect(session.status).toBe('completed')
    expect(await processes(booted, own, /^sleep 600/)).toEqual([])
    expect(ms).toBeLessThan(2000)
    console.info(
      `spawn bomb: 10,000 attempts in ${seconds.toFixed(1)} s; the tree of ${allowed} ended in ${ms.toFixed(0)} ms`,
    )
  })
})

describe('usage', () => {
  test('is nothing for a shell, and is shown per session, tree and project', async () => {
    const session = await spawn(booted, project_id, 'true')
    await say(booted, session.session_id, 'true')
    expect(session.usage).toEqual({ input_tokens: 0, output_tokens: 0, cost_usd: 0 })
    const limits = await booted.ok('config_limits', { project_id, session_id: session.session_id })
    expect(limits.session).toMatchObject({ depth: 0, tree: { sessions: 1, input_tokens: 0, cost_usd: 0 } })
  })
})
