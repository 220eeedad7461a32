// Schedules as a user has them: over MCP and the command line, with real sessions in a real container.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { connect } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const yearly = { cron_expr: '0 0 1 1 *', name: 'yearly' }
const create = (fields: Record<string, unknown>) =>
  booted.ok('schedule', { action: 'create', ...yearly, targets: [{ project_id }], ...fields })
const history = async (schedule_id: string): Promise<Answer[]> =>
  (await booted.ok('schedule', { action: 'history', schedule_id, limit: 200 })).runs
const trigger = async (schedule_id: string): Promise<Answer> =>
  (await booted.ok('schedule', { action: 'trigger', schedule_id })).runs[0]
const over = (schedule_id: string, deadline_ms = 30_000): Promise<Answer> =>
  until(
    async () => {
      const [run] = await history(schedule_id)
      return run?.ended_at && run
    },
    { what: 'the run is over', deadline_ms, every_ms: 100 },
  )

describe('with the real clock', () => {
  it('every second for 20 s is twenty turns of one session', { timeout: 90_000 }, async () => {
    const { schedule_id } = await create({
      cron_expr: '* * * * * *',
      prompt: 'echo tick >> ticks; wc -l < ticks',
      overlap_behavior: 'queue',
    })
    const enough = async () => (await history(schedule_id)).length >= 20
    await until(enough, { what: 'twenty runs were due', deadline_ms: 40_000, every_ms: 250 })
    await booted.ok('schedule', {
      action: 'update',
      schedule_id,
      overlap_behavior: 'skip',
      cron_expr: '@yearly',
    })
    const runs = await until(
      async () => {
        const all = await history(schedule_id)
        return all.every((run) => run.ended_at) && all.reverse()
      },
      { what: 'all runs are over', deadline_ms: 30_000, every_ms: 250 },
    )
    expect(runs.map(({ status, error }) => `${status} ${error}`)).toEqual(runs.map(() => 'success null'))
    const dues = runs.map(({ due_at }) => Date.parse(due_at))
    expect(dues).toEqual(dues.map((_, at) => dues[0]! + at * 1000))
    expect(runs.map(({ output }) => Number(output))).toEqual(runs.map((_, at) => at + 1))
    expect(new Set(runs.map(({ session_id }) => session_id)).size).toBe(1)
    const late = runs.map(({ due_at, started_at }) => Date.parse(started_at) - Date.parse(due_at))
    const took = runs.map(({ duration_ms }) => duration_ms).sort((a, b) => a - b)
    console.log(
      `${runs.length} runs, started late by ${Math.max(...late)} ms at most, took ${took[took.length >> 1]} ms (median)`,
    )
    const { targets } = await booted.ok('schedule', { action: 'get', schedule_id })
    expect(targets[0]).toMatchObject({ project_id, session_id: runs[0]!.session_id, last_run: runs.at(-1) })
  })
})

describe('a run', () => {
  it('that ends with an exit code is failed, with its output', async () => {
    const { schedule_id } = await create({ prompt: 'echo said; exit 3', session_behavior: 'new' })
    await trigger(schedule_id)
    const run = await over(schedule_id)
    expect(run).toMatchObject({ status: 'failed', output: 'said\n', trigger: 'manual' })
    expect(run.error).toContain('exit code 3')
    const session = await booted.ok('session', { action: 'get', session_id: run.session_id })
    expect(session).toMatchObject({ created_by: schedule_id, source: 'schedule', external_id: run.run_id })
    await until(
      async () =>
        (await booted.ok('session', { action: 'get', session_id: run.session_id })).status === 'completed',
      { what: 'its session is ended' },
    )
  })

  it('that is cancelled in its session is cancelled', async () => {
    const { schedule_id } = await create({ prompt: 'sleep 300', session_behavior: 'new' })
    await trigger(schedule_id)
    const session_id = await until(async () => (await history(schedule_id))[0]?.session_id, {
      what: 'it has a session',
    })
    await until(
      async () => (await booted.ok('session', { action: 'get', session_id })).status === 'running',
      { what: 'its turn runs' },
    )
    await booted.ok('session', { action: 'cancel', session_id })
    expect(await over(schedule_id)).toMatchObject({ status: 'cancelled', error: 'the turn was cancelled' })
  })

  it('goes through the door: it is audited as the schedule, with its token', async () => {
    const { schedule_id, token_id } = await create({ prompt: 'true' })
    await trigger(schedule_id)
    await over(schedule_id)
    const rows = await booted.query<{ tool: string; action: string; via: string; token_id: string }>(
      'select tool, action, via, token_id from audit where caller_id = $1',
      [schedule_id],
    )
    expect(rows).toEqual([{ tool: 'session', action: 'spawn', via: 'schedule', token_id }])
  })

  it('of a project that is gone is refused, and so is an unknown workspace', async () => {
    const targets = [{ project_id, workspace_id: 'nowhere' }]
    expect(
      await booted.fault('schedule', { action: 'create', ...yearly, prompt: 'true', targets }),
    ).toMatchObject({ kind: 'not_found', message: 'no workspace nowhere' })
  })
})

describe('a killed server', () => {
  it('leaves runs that the next one finishes', { timeout: 90_000 }, async () => {
    const started = await create({ prompt: 'sleep 5; echo survived', session_behavior: 'new' })
    const claimed = await create({ prompt: 'echo began late', session_behavior: 'resume' })
    await trigger(started.schedule_id)
    await until(async () => (await history(started.schedule_id))[0]?.session_id, { what: 'it was started' })
    await booted.server.kill('SIGKILL')
    // What a kill between claim and start leaves behind.
    await booted.query(
      `insert into schedule_runs (id, schedule_id, target_id, project_id, trigger, due_at, status, prompt,
         session_behavior, claimed_by, lease_until, created_at)
       select 'run_0123456789abcdef', id, (select id from schedule_targets where schedule_id = schedules.id), $2, 'cron',
         now(), 'running', prompt, session_behavior, 'a dead one', now(), now()
       from schedules where id = $1`,
      [claimed.schedule_id, project_id],
    )
    await booted.server.restart()
    await booted.reconnect()
    expect(await over(claimed.schedule_id)).toMatchObject({ status: 'success', output: 'began late\n' })
    expect(await over(started.schedule_id)).toMatchObject({ status: 'success', output: 'survived\n' })
    for (const { schedule_id } of [started, claimed]) expect(await history(schedule_id)).toHaveLength(1)
  })
})

describe('a repeated message', () => {
  it('with the same key is sent once', async () => {
    const { session_id } = await booted.ok('session', {
      action: 'spawn',
      project_id,
      prompt: 'true',
      new_session: true,
    })
    const message = {
      action: 'message',
      session_id,
      message: 'echo once',
      idempotency_key: 'k',
      wait_seconds: 30,
    }
    const [first, second] = [await booted.ok('session', message), await booted.ok('session', message)]
    expect(second).toMatchObject({ turn_id: first.turn_id, since_index: first.since_index, finished: true })
    expect(second.turns).toBe(2)
    const other = await booted.fault('session', { ...message, message: 'echo twice' })
    expect(other).toMatchObject({ kind: 'conflict' })
  })
})

describe('of several projects', () => {
  it('a schedule is there only for those who see all of them', async () => {
    const other_id = await booted.project()
    const targets = [{ project_id }, { project_id: other_id }]
    const { schedule_id } = await create({ prompt: 'true', targets, enabled: false })
    const { token } = await booted.ok('token', {
      action: 'create',
      name: 'one',
      scope: `project:${project_id}`,
    })
    const one = await connect(booted.server, token)
    const calls = [
      { action: 'get' },
      { action: 'update', name: 'mine' },
      { action: 'trigger' },
      { action: 'history' },
      { action: 'delete' },
    ]
    for (const call of calls) {
      const { structured, is_error } = await one.call('schedule', { ...call, schedule_id })
      expect({ is_error, ...structured }, call.action).toMatchObject({
        is_error: true,
        error: { kind: 'not_found', message: `no schedule ${schedule_id}` },
      })
    }
    const { structured } = await one.call('schedule', { action: 'list', limit: 200 })
    const seen = (structured.schedules as Answer[]).map((schedule) => schedule.schedule_id)
    expect(seen).not.toContain(schedule_id)
    expect(seen.length).toBeGreaterThan(0)
    const made = await one.call('schedule', { action: 'create', ...yearly, prompt: 'true', targets })
    expect(made.structured).toMatchObject({ error: { kind: 'not_found', message: `no project ${other_id}` } })
    await one.close()
    await booted.ok('project', { action: 'delete', project_id: other_id })
    expect((await booted.ok('schedule', { action: 'get', schedule_id })).targets).toHaveLength(1)
    await booted.ok('schedule', { action: 'delete', schedule_id })
    expect(await booted.fault('schedule', { action: 'get', schedule_id })).toMatchObject({
      kind: 'not_found',
    })
  })
})

describe('a revoked token', () => {
  it('disables its schedules, with the reason', async () => {
    const { token, token_id } = await booted.ok('token', {
      action: 'create',
      name: 'short',
      scope: `project:${project_id}`,
    })
    const one = await connect(booted.server, token)
    const made = await one.call('schedule', {
      action: 'create',
      ...yearly,
      prompt: 'true',
      targets: [{ project_id }],
    })
    const schedule_id = made.structured.schedule_id as string
    await one.close()
    await booted.ok('token', { action: 'revoke', token_id })
    await until(
      async () =>
        (await booted.ok('schedule', { action: 'get', schedule_id })).disabled_reason ===
        `token ${token_id} was revoked`,
      { what: 'it says why' },
    )
  })
})

describe('on the command line', () => {
  const cli = (...words: string[]) =>
    runCli(['schedule', ...words], {
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
    })
  const json = async (...words: string[]) => {
    const { code, stdout, stderr } = await cli(...words, '--json')
    expect(stderr).toBe('')
    expect(code).toBe(0)
    return JSON.parse(stdout) as Answer
  }

  it('is created, previewed, run, shown and deleted', async () => {
    const preview = await json('preview', '0 9 * * MON-FRI', '--time-zone', 'Europe/Berlin', '--next', '5')
    expect(preview.next_runs).toHaveLength(5)
    const made = await json(
      ...['create', 'from the shell', '*/5 * * * *', 'echo hello'],
      ...['--targets', `project_id=${project_id}`, '--next', '5'],
    )
    const { schedule_id } = made
    expect(made.next_runs).toHaveLength(5)
    expect((await json('get', schedule_id, '--next', '7')).next_runs).toHaveLength(7)
    await json('trigger', schedule_id)
    expect(await over(schedule_id)).toMatchObject({ output: 'hello\n' })
    const table = await cli('history', schedule_id)
    expect(table.stdout).toMatch(/success/)
    expect((await cli('list')).stdout).toContain('from the shell')
    await json('update', schedule_id, '--enabled', 'false')
    await json('delete', schedule_id)
    const wrong = await cli('preview', '0 0 30 2 *')
    expect(wrong.code).not.toBe(0)
    expect(wrong.stderr).toContain('has no future occurrence')
  })
})
