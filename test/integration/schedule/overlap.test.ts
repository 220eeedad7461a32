// A run that is due while another is not over, for every overlap and session behaviour; and what a session is kept for.
import { afterEach, describe, expect, it } from 'vitest'
import { createRig, type Rig } from '../../harness/schedule/scheduling.ts'

let rig: Rig
afterEach(async () => await rig?.close())

const start = '2026-01-01T00:00:00Z'
const minute = (number: number) => Date.parse(start) + number * 60_000
const statuses = async (schedule_id: string) => (await rig.history(schedule_id)).map(({ status }) => status)

describe.each(['resume', 'new'] as const)('with session_behavior %s', (session_behavior) => {
  const begin = async (overlap_behavior: 'skip' | 'queue' | 'parallel') => {
    rig = await createRig(start)
    const fields = { cron_expr: '* * * * *', overlap_behavior, session_behavior }
    return (await rig.create(fields)).schedule_id
  }
  /** One session for all, or one for each that is ended after its turn. */
  const checkSessions = () => {
    const used = new Set(rig.door.turns.map(({ session_id }) => session_id))
    expect(used.size).toBe(session_behavior === 'resume' ? 1 : rig.door.turns.length)
    const later = rig.door.turns.slice(1).map(({ action }) => action)
    expect(new Set(later)).toEqual(new Set([session_behavior === 'resume' ? 'message' : 'spawn']))
    expect(rig.door.ended).toEqual(session_behavior === 'resume' ? new Set() : used)
  }

  it('skip leaves out what is due meanwhile', async () => {
    const schedule_id = await begin('skip')
    await rig.at(minute(1))
    const first = await rig.turn(0)
    await rig.at(minute(2))
    await rig.at(minute(3))
    expect(await statuses(schedule_id)).toEqual(['running', 'skipped', 'skipped'])
    await rig.finish(first)
    await rig.at(minute(4))
    await rig.finish(await rig.turn(1))
    const history = await rig.history(schedule_id)
    expect(history.map(({ status }) => status)).toEqual(['success', 'skipped', 'skipped', 'success'])
    expect(history[1]?.error).toBe('the previous run was still running')
    checkSessions()
  })

  it('queue runs them one after the other, in order, and no more than it may', async () => {
    const schedule_id = await begin('queue')
    for (const number of [1, 2, 3, 4, 5]) await rig.at(minute(number))
    expect(await statuses(schedule_id)).toEqual(['running', 'queued', 'queued', 'queued', 'skipped'])
    for (const number of [0, 1, 2, 3]) {
      const turn = await rig.turn(number)
      expect(rig.door.turns).toHaveLength(number + 1)
      await rig.finish(turn)
    }
    const history = await rig.history(schedule_id)
    expect(history.map(({ status }) => status)).toEqual([
      'success',
      'success',
      'success',
      'success',
      'skipped',
    ])
    expect(history[4]?.error).toBe('3 runs are queued, the limit')
    expect(rig.door.turns.map(({ key }) => key)).toEqual(history.slice(0, 4).map(({ run_id }) => run_id))
    checkSessions()
  })

  it('parallel starts them all', async () => {
    const schedule_id = await begin('parallel')
    for (const number of [1, 2, 3]) await rig.at(minute(number))
    const turns = [await rig.turn(0), await rig.turn(1), await rig.turn(2)]
    expect(await statuses(schedule_id)).toEqual(['running', 'running', 'running'])
    for (const turn of turns.reverse()) await rig.finish(turn)
    expect(await statuses(schedule_id)).toEqual(['success', 'success', 'success'])
    checkSessions()
  })

  it('a trigger obeys the same rules', async () => {
    const schedule_id = await begin('queue')
    const { runs } = await rig.schedules.trigger(schedule_id)
    expect(runs).toMatchObject([{ status: 'running', trigger: 'manual' }])
    const again = await rig.schedules.trigger(schedule_id)
    expect(again.runs).toMatchObject([{ status: 'queued' }])
    await rig.finish(await rig.turn(0))
    await rig.finish(await rig.turn(1))
    checkSessions()
  })
})

describe('the session of a target', () => {
  it('is replaced when it was ended, and by one only', async () => {
    rig = await createRig(start)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', overlap_behavior: 'parallel' })
    await rig.at(minute(1))
    await rig.finish(await rig.turn(0))
    rig.door.ended.add(rig.door.turns[0]!.session_id)
    await Promise.all([rig.schedules.trigger(schedule_id), rig.schedules.trigger(schedule_id)])
    const [second, third] = [await rig.turn(1), await rig.turn(2)]
    expect(second.session_id).not.toBe(rig.door.turns[0]!.session_id)
    expect(third.session_id).toBe(second.session_id)
    const { targets } = await rig.schedules.get(schedule_id, 0)
    expect(targets[0]?.session_id).toBe(second.session_id)
  })

  it('is another one when the droid is another', async () => {
    rig = await createRig(start)
    const { schedule_id } = await rig.create({ cron_expr: '* * * * *', droid: 'shell' })
    await rig.at(minute(1))
    await rig.finish(await rig.turn(0))
    await rig.schedules.update(rig.admin, schedule_id, { droid: 'other' }, 0)
    await rig.at(minute(2))
    await rig.finish(await rig.turn(1))
    expect(rig.door.turns[1]).toMatchObject({ action: 'spawn' })
  })
})
