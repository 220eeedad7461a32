// What lasts: whose behalf a schedule runs on, what history keeps, what goes with a project, and runs whose server was killed.
import { afterEach, describe, expect, it } from 'vitest'
import { Secret } from '../../../internal/log.ts'
import { createTokens } from '../../../internal/manager/access/tokens.ts'
import { createProjectNames } from '../../../internal/manager/project/names.ts'
import { openStore } from '../../../internal/store/open.ts'
import {
  addToken,
  createClock,
  createRig,
  createScheduling,
  createStubDoor,
  log,
  type Rig,
} from '../../harness/schedule/scheduling.ts'
import { until } from '../../harness/wait.ts'

let rig: Rig
afterEach(async () => await rig?.close())

const start = '2026-01-01T00:00:00Z'
const minute = (number: number) => Date.parse(start) + number * 60_000

describe('on behalf of a token', () => {
  it('runs have the scope of the token that made the schedule, and its secret is shown to no one', async () => {
    rig = await createRig(start)
    const token = await addToken(rig.store, `project:${rig.project_id}`)
    const made = await rig.create({ cron_expr: '* * * * *' }, token)
    await rig.at(minute(1))
    const { caller } = await rig.turn(0)
    expect(caller).toEqual({
      kind: 'schedule',
      id: made.schedule_id,
      name: 'test',
      scope: token.scope,
      token_id: token.id,
      expires_at: null,
    })
    expect(JSON.stringify(made)).not.toMatch(/oub_/)
  })

  it('needs a token that may write to every target', async () => {
    rig = await createRig(start)
    const other = await rig.project()
    const targets = [{ project_id: rig.project_id }, { project_id: other }]
    const token = await addToken(rig.store, `project:${rig.project_id}`)
    await expect(rig.create({ cron_expr: '* * * * *', targets }, token)).rejects.toThrow(/may not write/)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' }, token)
    // An admin may see both, but the runs would still be those of the token.
    await expect(rig.schedules.update(rig.admin, schedule_id, { targets }, 0)).rejects.toThrow(
      /may not write/,
    )
  })

  it('a revoked token disables, with a reason, and another token can take its place', async () => {
    rig = await createRig(start)
    const token = await addToken(rig.store, 'admin')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', overlap_behavior: 'queue' }, token)
    await rig.at(minute(1))
    const first = await rig.turn(0)
    await rig.at(minute(2))
    await createTokens({
      store: rig.store,
      requireProject: async () => undefined,
      projectNames: createProjectNames(rig.store.db),
      forget: () => undefined,
    }).revoke(token.id)
    const shown = await until(
      async () => {
        const schedule = await rig.schedules.get(schedule_id, 3)
        return !schedule.enabled && schedule
      },
      { what: 'the schedule is disabled' },
    )
    expect(shown).toMatchObject({
      disabled_reason: `token ${token.id} was revoked`,
      next_run_at: null,
      next_runs: [],
    })
    await expect(rig.schedules.trigger(schedule_id)).rejects.toThrow(/was revoked/)
    await rig.finish(first)
    await rig.at(minute(3))
    expect(await rig.history(schedule_id)).toMatchObject([{ status: 'success' }, { status: 'cancelled' }])
    const enabled = await rig.schedules.update(rig.admin, schedule_id, { enabled: true }, 0)
    expect(enabled).toMatchObject({ token_id: rig.admin.id, disabled_reason: null, enabled: true })
    await rig.at(minute(4))
    expect((await rig.turn(1)).caller.token_id).toBe(rig.admin.id)
  })

  it('a token that was revoked without a notification starts no run', async () => {
    rig = await createRig(start)
    const token = await addToken(rig.store, 'admin')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' }, token)
    await rig.scheduler.once()
    await rig.store.db.updateTable('tokens').set({ revoked_at: start }).where('id', '=', token.id).execute()
    await rig.at(minute(1))
    const { disabled_reason } = await rig.schedules.get(schedule_id, 0)
    expect(disabled_reason).toBe(`token ${token.id} was revoked`)
    expect(await rig.history(schedule_id)).toEqual([])
    expect(rig.door.turns).toHaveLength(0)
  })

  it('an expired token disables when it expires, not when a run is due', async () => {
    rig = await createRig(start)
    const token = await addToken(rig.store, 'admin', new Date(minute(90)).toISOString())
    const { schedule_id } = await rig.create({ cron_expr: '@yearly' }, token)
    rig.clock.set(minute(89))
    await rig.scheduler.once()
    expect(rig.clock.wakes()).toEqual([new Date(minute(90)).toISOString()])
    await rig.at(minute(90))
    expect(await rig.schedules.get(schedule_id, 0)).toMatchObject({
      enabled: false,
      disabled_reason: `token ${token.id} has expired`,
    })
  })
})

it('a schedule whose times cannot be read is disabled, and holds up no other', async () => {
  rig = await createRig(start)
  const bad = await rig.create({ cron_expr: '* * * * *' })
  const good = await rig.create({ cron_expr: '* * * * *' })
  await rig.store.db
    .updateTable('schedules')
    .set({ time_zone: 'Gone/Zone' })
    .where('id', '=', bad.schedule_id)
    .execute()
  await rig.at(minute(1))
  await rig.finish(await rig.turn(0))
  expect(await rig.history(good.schedule_id)).toHaveLength(1)
  const shown = await rig.schedules.get(bad.schedule_id, 3)
  expect(shown).toMatchObject({ enabled: false, disabled_reason: expect.stringContaining('Gone/Zone') })
})

describe('history', () => {
  it('pages from the newest on, and can be told which runs', async () => {
    rig = await createRig(start)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    for (const number of [1, 2, 3, 4, 5]) {
      await rig.at(minute(number))
      await rig.finish(await rig.turn(number - 1), number === 3 ? { error: 'no' } : {})
    }
    const pages: string[][] = []
    let cursor: string | undefined
    do {
      const page = await rig.schedules.history({ schedule_id, limit: 2, cursor })
      pages.push(page.runs.map(({ due_at }) => due_at.slice(14, 16)))
      cursor = page.next_cursor ?? undefined
    } while (cursor)
    expect(pages).toEqual([['05', '04'], ['03', '02'], ['01']])
    const failed = await rig.schedules.history({ schedule_id, status: 'failed', limit: 10 })
    expect(failed.runs).toMatchObject([{ error: 'no', output: 'done', duration_ms: 0 }])
    await expect(rig.schedules.history({ schedule_id, limit: 2, cursor: 'x' })).rejects.toThrow(/cursor/)
  })

  it('keeps runs up to a number and an age', async () => {
    rig = await createRig(start, { keep_runs: 3, history_days: 1 })
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    for (const number of [1, 2, 3, 4, 5]) {
      await rig.at(minute(number))
      await rig.finish(await rig.turn(number - 1))
    }
    expect((await rig.history(schedule_id)).map(({ due_at }) => due_at.slice(14, 16))).toEqual([
      '03',
      '04',
      '05',
    ])
    await rig.schedules.update(rig.admin, schedule_id, { enabled: false }, 0)
    rig.clock.set(minute(5 + 1440 - 1))
    await rig.schedules.expire()
    expect((await rig.history(schedule_id)).map(({ due_at }) => due_at.slice(14, 16))).toEqual(['04', '05'])
  })
})

describe('a deleted project', () => {
  it('goes from the targets, with its runs, and the last one takes the schedule with it', async () => {
    rig = await createRig(start)
    const other = await rig.project()
    const targets = [{ project_id: rig.project_id }, { project_id: other }]
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', targets })
    await rig.at(minute(1))
    await rig.turn(1)
    await rig.removeProject(other)
    const { targets: left } = await rig.schedules.get(schedule_id, 0)
    expect(left.map(({ project_id }) => project_id)).toEqual([rig.project_id])
    expect(await rig.history(schedule_id)).toMatchObject([{ project_id: rig.project_id, status: 'running' }])
    await rig.removeProject(rig.project_id)
    await expect(rig.schedules.get(schedule_id, 0)).rejects.toThrow(`no schedule ${schedule_id}`)
    await rig.at(minute(2))
    expect(rig.door.turns).toHaveLength(2)
  })
})

describe('a server that was killed', () => {
  /** A second scheduler on the same database; what it is given to hold, it never lets go by itself. */
  async function another(door = createStubDoor()) {
    const store = await openStore({ database_url: new Secret(rig.database_url), log })
    const clock = createClock(start)
    const { scheduler } = createScheduling(store, clock, door)
    return { store, clock, scheduler, door }
  }

  it('between claim and start leaves a run that the next one starts', async () => {
    rig = await createRig(start)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    const never = new Promise<never>(() => undefined)
    const dead = await another({ ...createStubDoor(), call: () => never })
    dead.clock.set(minute(1))
    await dead.scheduler.once()
    expect(await rig.history(schedule_id)).toMatchObject([{ status: 'running', session_id: null }])
    // Its lease counts as long as it could be alive.
    await rig.at(minute(1) + 14_000)
    expect(rig.door.turns).toHaveLength(0)
    await rig.at(minute(1) + 15_000)
    await rig.finish(await rig.turn(0))
    expect(await rig.history(schedule_id)).toMatchObject([{ status: 'success', output: 'done' }])
    await dead.store.close()
  })

  it('between start and end leaves a run that the next one sees to its end, without a second start', async () => {
    rig = await createRig(start)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    const dead = await another(rig.door)
    dead.clock.set(minute(1))
    await dead.scheduler.once()
    const turn = await rig.turn(0)
    await until(async () => (await rig.history(schedule_id))[0]?.session_id, { what: 'the start is written' })
    await dead.store.close()
    await rig.at(minute(1) + 15_000)
    expect(await rig.finish(turn)).toBe('success')
    expect(rig.door.turns).toHaveLength(1)
  })

  it('between the start and its being written leaves a run that is not started twice', async () => {
    rig = await createRig(start)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' })
    const never = new Promise<never>(() => undefined)
    const call: typeof rig.door.call = async (...args) => {
      await rig.door.call(...args)
      return await never
    }
    const dead = await another({ ...rig.door, call })
    dead.clock.set(minute(1))
    await dead.scheduler.once()
    const turn = await rig.turn(0)
    await rig.at(minute(1) + 15_000)
    expect(await rig.finish(turn)).toBe('success')
    expect(rig.door.turns).toHaveLength(1)
    expect((await rig.schedules.get(schedule_id, 0)).targets[0]?.session_id).toBe(turn.session_id)
    await dead.store.close()
  })

  it('and closed in good order lets its runs go at once', async () => {
    rig = await createRig(start)
    await rig.create({ cron_expr: '* * * * *' })
    const closed = await another(rig.door)
    closed.clock.set(minute(1))
    await closed.scheduler.once()
    const turn = await rig.turn(0)
    await closed.scheduler.close()
    await closed.store.close()
    rig.clock.set(minute(1))
    expect(await rig.finish(turn)).toBe('success')
    expect(rig.door.turns).toHaveLength(1)
  })

  it('does not run what a disabled schedule had claimed', async () => {
    rig = await createRig(start)
    const token = await addToken(rig.store, 'admin')
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *' }, token)
    const never = new Promise<never>(() => undefined)
    const dead = await another({ ...createStubDoor(), call: () => never })
    dead.clock.set(minute(1))
    await dead.scheduler.once()
    await dead.store.close()
    await createTokens({
      store: rig.store,
      requireProject: async () => undefined,
      projectNames: createProjectNames(rig.store.db),
      forget: () => undefined,
    }).revoke(token.id)
    await rig.at(minute(1) + 15_000)
    const [run] = await until(
      async () => {
        const history = await rig.history(schedule_id)
        return history[0]?.ended_at && history
      },
      { what: 'the run is closed' },
    )
    expect(run).toMatchObject({ status: 'cancelled', error: expect.stringContaining('was revoked') })
    expect(rig.door.turns).toHaveLength(0)
  })
})
