// The changes of rows that the scheduler makes, each in one transaction. A due schedule is locked, its runs are inserted and its
// next time is written before anything starts, so that a second scheduler on the same database finds nothing left to claim.
// A run belongs to the scheduler that claimed it while that renews its lease. `endings.ts` writes how runs end.
import { messageOf } from '../../fault.ts'
import { newRunId } from '../../ids.ts'
import type { Db, Store } from '../../store/open.ts'
import * as runs from '../../store/rows/schedule/runs.ts'
import * as rows from '../../store/rows/schedule/schedules.ts'
import { type Due, dueTimes, mostCounted } from './cron.ts'
import { createEndings } from './endings.ts'

export type ClaimsDeps = {
  store: Store
  now: () => number
  /** The unique name of this scheduler. */
  claimed_by: string
  lease_ms: number
  /** How many runs of one target may be queued behind the running one. */
  queue_limit: number
  keep_runs: number
}

export type Claimed = { run: runs.RunRow; schedule: rows.ScheduleRow }
type Trigger = runs.RunRow['trigger']
type Placing = { row: rows.ScheduleRow; target: rows.TargetRow; trigger: Trigger; due_at: number }

/** A due time that is longer ago was missed, because no server was running. Long enough for a restart of the server. */
export const graceMs = 15_000

const iso = (time: number) => new Date(time).toISOString()

export function overlapping(
  overlap: rows.ScheduleRow['overlap_behavior'],
  active: runs.Active,
  queue_limit: number,
): { status: 'running' | 'queued' | 'skipped'; error: string | null } {
  if (overlap === 'parallel' || active.running + active.queued === 0)
    return { status: 'running', error: null }
  if (overlap === 'skip') return { status: 'skipped', error: 'the previous run was still running' }
  if (active.queued >= queue_limit)
    return { status: 'skipped', error: `${active.queued} runs are queued, the limit` }
  return { status: 'queued', error: null }
}

export function createClaims(deps: ClaimsDeps) {
  const { store, now, queue_limit } = deps
  const lease = () => ({ claimed_by: deps.claimed_by, lease_until: iso(now() + deps.lease_ms) })

  /** The row of a due run, by the active runs of its target; updates `active` for the next one. */
  function place({ row, target, trigger, due_at }: Placing, active: runs.Active): runs.NewRun {
    const { status, error } = overlapping(row.overlap_behavior, active, queue_limit)
    if (status !== 'skipped') active[status] += 1
    return {
      ...blank({ row, target, trigger, due_at }),
      status,
      error,
      ...(status === 'running' ? lease() : {}),
      ...(status === 'skipped' ? { ended_at: iso(now()) } : { prompt: row.prompt }),
    }
  }

  const blank = ({ row, target, trigger, due_at }: Placing) => ({
    id: newRunId(),
    schedule_id: row.id,
    target_id: target.id,
    project_id: target.project_id,
    workspace_id: target.workspace_id,
    trigger,
    due_at: iso(due_at),
    session_behavior: row.session_behavior,
    droid: row.droid,
    created_at: iso(now()),
  })

  function missedRun(
    row: rows.ScheduleRow,
    target: rows.TargetRow,
    missed: NonNullable<Due['missed']>,
  ): runs.NewRun {
    const times =
      missed.count === 1
        ? ''
        : `, ${missed.count}${missed.count < mostCounted ? '' : ' or more'} times from then on`
    return {
      ...blank({ row, target, trigger: 'cron', due_at: missed.first }),
      status: 'skipped',
      error: `no server was running at that time${times}`,
      ended_at: iso(now()),
    }
  }

  function runsOf(
    row: rows.ScheduleRow,
    targets: rows.TargetRow[],
    { times, missed }: Due,
    active: (target_id: number) => runs.Active,
  ): runs.NewRun[] {
    return targets.flatMap((target) => {
      const one = (trigger: Trigger, due_at: number) =>
        place({ row, target, trigger, due_at }, active(target.id))
      const late = !missed
        ? []
        : row.catch_up === 'skip'
          ? [missedRun(row, target, missed)]
          : // One run makes up for all missed ones; a run that is due now does so as well.
            times.length === 0
            ? [one('catch_up', missed.first)]
            : []
      return [...late, ...times.map((time) => one('cron', time))]
    })
  }

  async function disable(trx: Db, id: string, reason: string): Promise<void> {
    const at = iso(now())
    const change = { enabled: false, disabled_reason: reason, next_run_at: null, updated_at: at }
    await rows.updateSchedule(trx, id, change)
    await runs.cancelQueued(trx, { schedule_id: id }, `the schedule was disabled: ${reason}`, at)
  }

  /** The reason if the times cannot be computed, for example for a removed time zone: it must not block other schedules. */
  async function timesOf(row: rows.ScheduleRow, at: number): Promise<Due | string> {
    try {
      return await dueTimes(row, Date.parse(row.next_run_at!), at, graceMs)
    } catch (error) {
      return `failed to compute its times: ${messageOf(error)}`
    }
  }

  /** Claims what is due, of at most `limit` schedules; `wait` as in `lockDue`. */
  async function due(limit: number, wait: boolean): Promise<{ schedules: number; claimed: Claimed[] }> {
    return await store.transact(async (trx) => {
      const at = now()
      const found = await rows.lockDue(trx, iso(at), limit, wait)
      if (found.length === 0) return { schedules: 0, claimed: [] }
      const targets = await rows.targetsOf(
        trx,
        found.map(({ id }) => id),
      )
      const counts = await runs.activeRuns(
        trx,
        targets.map(({ id }) => id),
      )
      const active = (target_id: number) => {
        const known = counts.get(target_id) ?? { running: 0, queued: 0 }
        counts.set(target_id, known)
        return known
      }
      const bySchedule = Map.groupBy(targets, (target) => target.schedule_id)
      const placed: runs.NewRun[] = []
      const moved: { id: string; next_run_at: string | null }[] = []
      for (const row of found) {
        const which = await timesOf(row, at)
        if (typeof which === 'string') {
          await disable(trx, row.id, which)
          continue
        }
        placed.push(...runsOf(row, bySchedule.get(row.id) ?? [], which, active))
        moved.push({ id: row.id, next_run_at: which.next === undefined ? null : iso(which.next) })
      }
      await rows.advanceSchedules(trx, moved)
      const byId = new Map(found.map((row) => [row.id, row]))
      const inserted = await runs.insertRuns(trx, placed)
      const claimed = inserted
        .filter(({ status }) => status === 'running')
        .map((run) => ({ run, schedule: byId.get(run.schedule_id)! }))
      return { schedules: found.length, claimed }
    })
  }

  /** Starts runs of all targets now; undefined if the schedule does not exist. */
  async function trigger(schedule_id: string): Promise<runs.RunRow[] | undefined> {
    return await store.transact(async (trx) => {
      const row = await rows.lockSchedule(trx, schedule_id)
      if (!row) return undefined
      const targets = await rows.targetsOf(trx, [schedule_id])
      const counts = await runs.activeRuns(
        trx,
        targets.map(({ id }) => id),
      )
      const none = { running: 0, queued: 0 }
      return await runs.insertRuns(
        trx,
        targets.map((target) =>
          place({ row, target, trigger: 'manual', due_at: now() }, counts.get(target.id) ?? { ...none }),
        ),
      )
    })
  }

  /** Disables schedules whose token was revoked, has expired or was deleted. */
  async function disableOrphaned(): Promise<{ id: string; reason: string }[]> {
    return await store.transact(async (trx) => {
      const orphaned = await rows.lockOrphaned(trx, iso(now()))
      for (const { id, reason } of orphaned) await disable(trx, id, reason)
      return orphaned
    })
  }

  return {
    due,
    trigger,
    disableOrphaned,
    takeOver: async (except: string[], limit: number) =>
      await runs.takeOver(store.db, lease(), iso(now()), except, limit),
    renew: async (ids: string[]) => await runs.renewLeases(store.db, lease(), ids),
    releaseAll: async () => await runs.releaseAllLeases(store.db, iso(now())),
    release: async () => await runs.releaseLeases(store.db, deps.claimed_by, iso(now())),
    ...createEndings({ store, now, lease, keep_runs: deps.keep_runs }),
  }
}
