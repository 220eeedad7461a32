// The real scheduler and a real database, with a clock that the test moves: when runs are due, and what becomes of them.
import { afterEach, describe, expect, it } from 'vitest'
import { createRig, type Rig } from '../../harness/schedule/scheduling.ts'
import { until } from '../../harness/wait.ts'

let rig: Rig
afterEach(async () => await rig?.close())

const dues = async (schedule_id: string) =>
  (await rig.history(schedule_id)).map((run) => `${run.due_at.slice(0, 19)} ${run.status}`)

describe('times', () => {
  it.each([
    {
      what: 'the clocks go forward in Berlin',
      start: '2026-03-27T12:00:00Z',
      timing: { cron_expr: '30 2 * * *', time_zone: 'Europe/Berlin' },
      expected: ['2026-03-28T01:30:00', '2026-03-29T01:00:00', '2026-03-30T00:30:00'],
    },
    {
      what: 'the clocks go back in Berlin',
      start: '2026-10-23T12:00:00Z',
      timing: { cron_expr: '30 2 * * *', time_zone: 'Europe/Berlin' },
      expected: ['2026-10-24T00:30:00', '2026-10-25T00:30:00', '2026-10-26T01:30:00'],
    },
    {
      what: 'the clocks go forward in New York',
      start: '2026-03-06T12:00:00Z',
      timing: { cron_expr: '30 2 * * *', time_zone: 'America/New_York' },
      expected: ['2026-03-07T07:30:00', '2026-03-08T07:00:00', '2026-03-09T06:30:00'],
    },
    {
      what: 'the clocks go back in New York, at intervals',
      start: '2026-11-01T04:45:00Z',
      timing: { cron_expr: '*/30 * * * *', time_zone: 'America/New_York' },
      expected: ['2026-11-01T05:00:00', '2026-11-01T05:30:00', '2026-11-01T06:00:00', '2026-11-01T06:30:00'],
    },
    {
      what: 'months have different lengths',
      start: '2026-01-30T00:00:00Z',
      timing: { cron_expr: '0 0 31 * *' },
      expected: ['2026-01-31T00:00:00', '2026-03-31T00:00:00', '2026-05-31T00:00:00'],
    },
    {
      what: 'it is the last day of the month that counts',
      start: '2028-01-30T00:00:00Z',
      timing: { cron_expr: '0 0 L * *' },
      expected: ['2028-01-31T00:00:00', '2028-02-29T00:00:00', '2028-03-31T00:00:00'],
    },
    {
      what: 'there are leap days',
      start: '2026-01-01T00:00:00Z',
      timing: { cron_expr: '0 12 29 2 *' },
      expected: ['2028-02-29T12:00:00', '2032-02-29T12:00:00'],
    },
  ])('are right when $what', async ({ start, timing, expected }) => {
    rig = await createRig(start)
    const { schedule_id, next_runs } = await rig.create(timing)
    expect(next_runs[0]?.slice(0, 19)).toBe(expected[0])
    for (const [at, time] of expected.entries()) {
      await rig.at(Date.parse(`${time}Z`) - 1000)
      expect(await rig.history(schedule_id)).toHaveLength(at)
      await rig.at(`${time}Z`)
      expect(await rig.finish(await rig.turn(at))).toBe('success')
    }
    expect(await dues(schedule_id)).toEqual(expected.map((time) => `${time} success`))
  })

  it('wake the scheduler by themselves, and nothing else does', async () => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '3 * * * *' })
    await until(() => rig.clock.wakes()[0] === '2026-01-01T00:03:00.000Z', { what: 'it sleeps until then' })
    expect(rig.clock.wakes()).toHaveLength(1)
    rig.clock.set('2026-01-01T00:03:00Z')
    await rig.finish(await rig.turn(0))
    expect(await dues(schedule_id)).toEqual(['2026-01-01T00:03:00 success'])
  })

  it('of several targets are one run each', async () => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const other = await rig.project()
    const targets = [{ project_id: rig.project_id }, { project_id: other }]
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', targets })
    await rig.at('2026-01-01T00:01:00Z')
    await rig.finish(await rig.turn(0), { final_text: 'one' })
    await rig.finish(await rig.turn(1), { stop_reason: 'error', error: 'exit code 3', exit_code: 3 })
    const shown = await rig.schedules.get(schedule_id, 0)
    const byProject = new Map(shown.targets.map((target) => [target.project_id, target]))
    const [first, second] = [rig.door.turns[0]!, rig.door.turns[1]!]
    expect(byProject.get(first.project_id!)?.last_run).toMatchObject({ status: 'success', output: 'one' })
    expect(byProject.get(second.project_id!)?.last_run).toMatchObject({
      status: 'failed',
      error: 'exit code 3',
    })
    expect(new Set(byProject.keys())).toEqual(new Set([rig.project_id, other]))
  })
})

describe('after downtime', () => {
  const down = async (catch_up: 'skip' | 'once', hours = 5) => {
    rig = await createRig('2026-01-01T00:30:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '@hourly', catch_up })
    await rig.at(Date.parse('2026-01-01T00:30:00Z') + hours * 3_600_000)
    return schedule_id
  }

  it('missed runs are not made up for, and history records it', async () => {
    const schedule_id = await down('skip')
    const [only, ...rest] = await rig.history(schedule_id)
    expect(rest).toEqual([])
    expect(only).toMatchObject({
      status: 'skipped',
      error: 'no server was running at that time, 5 times from then on',
    })
    await rig.at('2026-01-01T06:00:00Z')
    await rig.finish(await rig.turn(0))
    expect(rig.door.turns).toHaveLength(1)
  })

  it('one run makes up for all', async () => {
    const schedule_id = await down('once')
    await rig.finish(await rig.turn(0))
    expect(await rig.history(schedule_id)).toMatchObject([{ trigger: 'catch_up', status: 'success' }])
    await rig.at('2026-01-01T06:00:00Z')
    await rig.finish(await rig.turn(1))
    expect(await dues(schedule_id)).toEqual(['2026-01-01T01:00:00 success', '2026-01-01T06:00:00 success'])
  })

  it('a few seconds are no downtime', async () => {
    rig = await createRig('2026-01-01T00:59:58Z')
    const { schedule_id } = await rig.create({ cron_expr: '@hourly' })
    await rig.at('2026-01-01T01:00:12Z')
    await rig.finish(await rig.turn(0))
    expect(await dues(schedule_id)).toEqual(['2026-01-01T01:00:00 success'])
  })
})

describe('a change', () => {
  it('disables and enables without making up for what was between', async () => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', enabled: false, catch_up: 'once' })
    await rig.at('2026-01-01T00:10:00Z')
    expect(await rig.schedules.get(schedule_id, 3)).toMatchObject({ next_run_at: null, next_runs: [] })
    await rig.schedules.update(rig.admin, schedule_id, { enabled: true }, 0)
    await rig.at('2026-01-01T00:10:59Z')
    expect(await rig.history(schedule_id)).toEqual([])
    await rig.at('2026-01-01T00:11:00Z')
    await rig.finish(await rig.turn(0))
    await rig.schedules.update(rig.admin, schedule_id, { enabled: false }, 0)
    await rig.at('2026-01-01T00:20:00Z')
    expect(await dues(schedule_id)).toEqual(['2026-01-01T00:11:00 success'])
  })

  it('takes effect at once, and leaves what runs as it is', async () => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '0 * * * *', prompt: 'before' })
    await rig.at('2026-01-01T01:00:00Z')
    const first = await rig.turn(0)
    await rig.schedules.update(rig.admin, schedule_id, { cron_expr: '*/5 * * * *', prompt: 'after' }, 0)
    await until(() => rig.clock.wakes().includes('2026-01-01T01:05:00.000Z'), { what: 'it sleeps anew' })
    expect(await rig.finish(first)).toBe('success')
    await rig.at('2026-01-01T01:05:00Z')
    await rig.finish(await rig.turn(1))
    expect(rig.door.turns.map(({ text }) => text)).toEqual(['before', 'after'])
    expect(await dues(schedule_id)).toEqual(['2026-01-01T01:00:00 success', '2026-01-01T01:05:00 success'])
  })

  it('of the targets keeps the sessions of those that stay', async () => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    await rig.at('2026-01-01T00:01:00Z')
    await rig.finish(await rig.turn(0))
    const other = await rig.project()
    const targets = [{ project_id: other }, { project_id: rig.project_id }]
    const { targets: after } = await rig.schedules.update(rig.admin, schedule_id, { targets }, 0)
    expect(after.find(({ project_id }) => project_id === rig.project_id)?.session_id).toBe(
      rig.door.turns[0]!.session_id,
    )
    await rig.schedules.update(rig.admin, schedule_id, { targets: [{ project_id: other }] }, 0)
    await rig.at('2026-01-01T00:02:00Z')
    await rig.finish(await rig.turn(1))
    expect(rig.door.turns[1]).toMatchObject({ action: 'spawn', project_id: other })
    expect(await rig.history(schedule_id)).toHaveLength(2)
  })

  it.each([
    [{ cron_expr: '0 0 30 2 *' }, /has no future occurrence/],
    [{ cron_expr: 'now' }, /five or six fields/],
    [{ time_zone: 'Mars/Base' }, /unknown time zone/],
  ])('to %j is refused', async (change, message) => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    await expect(rig.schedules.update(rig.admin, schedule_id, change, 0)).rejects.toThrow(message)
    await expect(rig.create({ cron_expr: '* * * * *', ...change })).rejects.toThrow(message)
  })

  it('while a run is queued cancels it when the schedule is disabled', async () => {
    rig = await createRig('2026-01-01T00:00:00Z')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', overlap_behavior: 'queue' })
    await rig.at('2026-01-01T00:01:00Z')
    const first = await rig.turn(0)
    await rig.at('2026-01-01T00:02:00Z')
    await rig.schedules.update(rig.admin, schedule_id, { enabled: false }, 0)
    await rig.finish(first)
    expect(await rig.history(schedule_id)).toMatchObject([
      { status: 'success' },
      { status: 'cancelled', error: 'the schedule was disabled' },
    ])
    expect(rig.door.turns).toHaveLength(1)
  })
})
