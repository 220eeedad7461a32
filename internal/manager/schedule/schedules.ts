// Schedules: create, get, list, update, delete, trigger. A schedule runs with the scope that its creator's token had at that
// time, and only while that token is valid. The scheduler decides when it runs and is notified of every change.
import type { Caller } from '../../auth/caller.ts'
import { isWithin } from '../../auth/grant.ts'
import { formatScope, parseScope, sees } from '../../auth/scope.ts'
import { Fault, unknown } from '../../fault.ts'
import { newScheduleId } from '../../ids.ts'
import type { Db, Store } from '../../store/open.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import {
  cancelQueued,
  deleteRunsBefore,
  lastRuns,
  listRuns,
  type RunRow,
} from '../../store/rows/schedule/runs.ts'
import * as rows from '../../store/rows/schedule/schedules.ts'
import { holdSession } from '../../store/rows/session/sessions.ts'
import type { RunStatus } from '../../store/schema.ts'
import type { ProjectNames } from '../project/names.ts'
import type { Projects } from '../project/projects.ts'
import type { Sessions } from '../session/sessions.ts'
import type { Workspaces } from '../workspace/workspaces.ts'
import { nextTime, type Timing } from './cron.ts'
import type { Scheduler } from './scheduler.ts'
import { shownRun, shownSchedule } from './shown.ts'
import type { ScheduleTimes } from './times.ts'

export type WantedTarget = { project_id: string; workspace_id?: string }
export type ScheduleFields = {
  name: string
  cron_expr: string
  prompt: string
  targets: WantedTarget[]
  time_zone: string
  enabled: boolean
  overlap_behavior: 'skip' | 'queue' | 'parallel'
  session_behavior: 'resume' | 'new'
  catch_up: 'skip' | 'once'
  droid?: string | null
}

type Deps = {
  store: Store
  projects: Pick<Projects, 'require'>
  projectNames: Pick<ProjectNames, 'of'>
  workspaces: Pick<Workspaces, 'resolve'>
  sessions: Pick<Sessions, 'droidOf' | 'requireMaySpawn'>
  scheduler: Pick<Scheduler, 'changed' | 'trigger'>
  times: Pick<ScheduleTimes, 'check' | 'next'>
  history_days: number
  now?: () => number
}

const iso = (time: number) => new Date(time).toISOString()
const same = (a: rows.Target, b: rows.Target) =>
  a.project_id === b.project_id && a.workspace_id === b.workspace_id
const plain = ({ project_id, workspace_id }: WantedTarget): rows.Target => ({
  project_id,
  workspace_id: workspace_id ?? null,
})

/** A schedule that a session creates within its own project stays; one with a wider scope ends with the session. */
const principalOf = (caller: Caller) => ({
  scope: formatScope(caller.scope),
  token_id: caller.token_id,
  session_id: isWithin(caller.scope, caller.inside_project_id) ? null : (caller.session_id ?? null),
  created_by: caller.id,
})

async function holdPrincipal(trx: Db, { session_id }: { session_id: string | null }): Promise<void> {
  if (session_id !== null && !(await holdSession(trx, session_id)))
    throw new Fault('conflict', `session ${session_id} is over and cannot create schedules`)
}

export function createSchedules(deps: Deps) {
  const { store, projects, scheduler, times, now = Date.now } = deps
  const { db } = store

  async function require(id: string, trx?: Db): Promise<rows.ScheduleRow> {
    const row = trx ? await rows.lockSchedule(trx, id) : await rows.scheduleById(db, id)
    if (!row) throw unknown('schedule', id)
    return row
  }

  /** Checks that every target exists, can run the droid, and is within the scope of the runs and the bounds of the caller. */
  async function checkTargets(
    caller: Caller,
    targets: rows.Target[],
    droid: string | null,
    principal: { scope: string; created_by: string },
  ): Promise<void> {
    const scope = parseScope(principal.scope)
    for (const [at, target] of targets.entries()) {
      if (scope.read_only || !sees(scope, target.project_id))
        throw new Fault('forbidden', `the schedule may not write to project ${target.project_id}`, {
          hint: `it runs with scope ${principal.scope}, that of its creator`,
        })
      const project = await projects.require(target.project_id)
      if (droid !== null || caller.session_id)
        await deps.sessions.requireMaySpawn(caller, deps.sessions.droidOf(project, droid ?? undefined))
      if (target.workspace_id !== null)
        await deps.workspaces.resolve({ id: principal.created_by }, target.project_id, {
          workspace_id: target.workspace_id,
        })
      if (targets.findIndex((other) => same(other, target)) !== at)
        throw new Fault('invalid', `targets: project ${target.project_id} is listed twice`, {
          hint: 'each combination of project and workspace may occur once',
        })
    }
  }

  const firstRun = (timing: Timing, enabled: boolean): string | null => {
    const next = enabled ? nextTime(timing, now()) : undefined
    return next === undefined ? null : iso(next)
  }

  async function create(caller: Caller, fields: ScheduleFields, next: number) {
    const { targets: wanted, droid = null, ...rest } = fields
    const targets = wanted.map(plain)
    const principal = principalOf(caller)
    await times.check(caller.id, rest, now())
    await checkTargets(caller, targets, droid, principal)
    const id = newScheduleId()
    const at = iso(now())
    await store.transact(async (trx) => {
      await holdPrincipal(trx, principal)
      const row = { ...rest, ...principal, id, droid, disabled_reason: null, created_at: at, updated_at: at }
      await rows.insertSchedule(trx, { ...row, next_run_at: firstRun(rest, rest.enabled) }, targets)
      await scheduler.changed(id, trx)
    })
    return await get(id, next)
  }

  const namesOf = (found: { project_id: string }[]) =>
    deps.projectNames.of(found.map(({ project_id }) => project_id))

  async function shownRuns(runs: RunRow[]) {
    const nameOf = await namesOf(runs)
    return runs.map((run) => shownRun(run, nameOf))
  }

  async function described(found: rows.ScheduleRow[], next: number) {
    const targets = await rows.targetsOf(
      db,
      found.map(({ id }) => id),
    )
    const last = await lastRuns(
      db,
      targets.map(({ id }) => id),
    )
    const bySchedule = Map.groupBy(targets, (target) => target.schedule_id)
    const nameOf = await namesOf(targets)
    const next_runs = await nextRuns(found, next)
    return found.map((row) =>
      shownSchedule(row, bySchedule.get(row.id) ?? [], last, next_runs.get(row.id) ?? [], nameOf),
    )
  }

  /** By creator: expensive expressions of one creator do not delay those of another. */
  async function nextRuns(found: rows.ScheduleRow[], count: number): Promise<Map<string, string[]>> {
    const byCreator = Map.groupBy(
      found.filter(({ enabled }) => enabled),
      ({ created_by }) => created_by,
    )
    const next_runs = new Map<string, string[]>()
    for (const [creator, mine] of byCreator) {
      const timings = mine.map(({ cron_expr, time_zone }) => ({ cron_expr, time_zone }))
      const listed = await times.next(creator, timings, now(), count)
      for (const [at, { id, next_run_at }] of mine.entries())
        next_runs.set(id, listed[at]!.length > 0 || !next_run_at || count === 0 ? listed[at]! : [next_run_at])
    }
    return next_runs
  }

  async function get(id: string, next: number) {
    return (await described([await require(id)], next))[0]!
  }

  /** Targets that stay keep their session. */
  async function replaceTargets(trx: Db, row: rows.ScheduleRow, wanted: rows.Target[]): Promise<void> {
    const before = await rows.targetsOf(trx, [row.id])
    const gone = before.filter((old) => !wanted.some((target) => same(old, target))).map(({ id }) => id)
    await cancelQueued(trx, { schedule_id: row.id, target_ids: gone }, 'its target was removed', iso(now()))
    const added = wanted.filter((target) => !before.some((old) => same(old, target)))
    await rows.insertTargets(trx, row.id, added)
    await rows.deleteTargets(trx, gone)
  }

  async function update(caller: Caller, id: string, change: Partial<ScheduleFields>, next: number) {
    const { targets: wanted, ...fields } = change
    const before = await require(id)
    const droid = fields.droid === undefined ? before.droid : fields.droid
    // Enabling a schedule whose token or session is no longer valid makes the caller its principal.
    const adopts = fields.enabled === true && !(await rows.principalCounts(db, before, iso(now())))
    const principal = adopts ? principalOf(caller) : undefined
    await times.check(caller.id, { ...before, ...fields }, now())
    const targets = wanted?.map(plain) ?? (await rows.targetsOf(db, [id]))
    if (wanted || principal || caller.session_id || droid !== before.droid)
      await checkTargets(caller, targets, droid, principal ?? before)
    await store.transact(async (trx) => {
      if (principal) await holdPrincipal(trx, principal)
      const row = await require(id, trx)
      const after = { ...row, ...fields }
      const retimed = (['enabled', 'cron_expr', 'time_zone'] as const).some((key) => after[key] !== row[key])
      await rows.updateSchedule(trx, id, {
        ...fields,
        ...principal,
        ...(retimed ? { next_run_at: firstRun(after, after.enabled) } : {}),
        ...(fields.enabled === undefined ? {} : { disabled_reason: null }),
        updated_at: iso(now()),
      })
      if (wanted) await replaceTargets(trx, row, wanted.map(plain))
      // The droid of a session cannot change.
      if (after.droid !== row.droid) await rows.unpin(trx, id)
      if (!after.enabled)
        await cancelQueued(trx, { schedule_id: id }, 'the schedule was disabled', iso(now()))
      await scheduler.changed(id, trx)
    })
    return await get(id, next)
  }

  async function remove(id: string) {
    if (!(await rows.deleteSchedule(db, id))) throw unknown('schedule', id)
    await scheduler.changed(id)
    return { schedule_id: id, deleted: true as const }
  }

  async function trigger(id: string) {
    const row = await require(id)
    if (row.disabled_reason !== null)
      throw new Fault('conflict', `schedule ${id} is disabled: ${row.disabled_reason}`, {
        hint: 'schedule update with enabled true enables it with your own token',
      })
    const runs = await scheduler.trigger(id)
    if (!runs) throw unknown('schedule', id)
    return { runs: await shownRuns(runs) }
  }

  async function list(
    filter: { project_id?: string; only_project?: string; enabled?: boolean; next: number } & PageRequest,
  ) {
    const { items, next_cursor } = await rows.listSchedules(db, filter)
    return { schedules: await described(items, filter.next), next_cursor }
  }

  async function history(
    filter: { schedule_id: string; status?: RunStatus; project_id?: string } & PageRequest,
  ) {
    await require(filter.schedule_id)
    const { items, next_cursor } = await listRuns(db, filter)
    return { runs: await shownRuns(items), next_cursor }
  }

  return {
    create,
    get,
    list,
    update,
    remove,
    trigger,
    history,
    async preview(caller: Caller, timing: Timing, next: number) {
      await times.check(caller.id, timing, now())
      const [next_runs = []] = await times.next(caller.id, [timing], now(), next)
      return { ...timing, next_runs }
    },
    /** All its projects: a caller that may not see one of them does not see the schedule. */
    projectsOf: async (id: string) => (await rows.targetsOf(db, [id])).map(({ project_id }) => project_id),
    expire: async () => await deleteRunsBefore(db, iso(now() - deps.history_days * 86_400_000)),
  }
}
