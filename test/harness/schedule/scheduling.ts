// The real scheduler on a real database, with a clock that stands still and a door that remembers what it was asked. A
// turn ends when the test ends it.

import { randomUUID } from 'node:crypto'
import type { Caller } from '../../../internal/auth/caller.ts'
import { parseScope } from '../../../internal/auth/scope.ts'
import { hashOf, newSecret } from '../../../internal/auth/tokens.ts'
import { unknown } from '../../../internal/fault.ts'
import { newSessionId, newTokenId } from '../../../internal/ids.ts'
import { createLog, Secret } from '../../../internal/log.ts'
import { createProjectNames } from '../../../internal/manager/project/names.ts'
import type { FollowSession, ScheduledCall } from '../../../internal/manager/schedule/run.ts'
import { type Clock, createScheduler } from '../../../internal/manager/schedule/scheduler.ts'
import { createSchedules, type ScheduleFields } from '../../../internal/manager/schedule/schedules.ts'
import { createScheduleTimes } from '../../../internal/manager/schedule/times.ts'
import { openStore, type Store } from '../../../internal/store/open.ts'
import { deleteProjectRows, insertProject, projectById } from '../../../internal/store/rows/projects.ts'
import { insertToken } from '../../../internal/store/rows/tokens.ts'
import { workspaceById } from '../../../internal/store/rows/workspaces.ts'
import { cloneDatabase } from '../database.ts'
import { until } from '../wait.ts'

const times = createScheduleTimes()

export const log = createLog({ level: 'error' })

export type TestClock = Clock & {
  /** Goes there, and what is due by then happens. */
  set(to: string | number): void
  /** When the earliest timer goes off. */
  wakes(): string[]
}

export function createClock(start: string): TestClock {
  let now = Date.parse(start)
  const timers = new Map<symbol, { at: number; go: () => void }>()
  return {
    now: () => now,
    after(ms, go) {
      const key = Symbol('timer')
      timers.set(key, { at: now + ms, go })
      return () => void timers.delete(key)
    },
    set(to) {
      now = typeof to === 'number' ? to : Date.parse(to)
      for (const [key, { at, go }] of [...timers].sort(([, a], [, b]) => a.at - b.at))
        if (at <= now && timers.delete(key)) go()
    },
    wakes: () => [...timers.values()].map(({ at }) => new Date(at).toISOString()).sort(),
  }
}

export type Turn = {
  session_id: string
  turn_id: string
  /** The run, as the key by which a repeat is known. */
  key: string
  text: string
  action: 'spawn' | 'message'
  project_id: string | undefined
  caller: Caller
  end(data?: Record<string, unknown>): void
  over: Promise<Record<string, unknown>>
}

/** Behaves as the tool `session` does, as far as schedules can see. */
export function createStubDoor() {
  const turns: Turn[] = []
  const ended = new Set<string>()
  const fault = (kind: string, message: string) => ({
    is_error: true,
    structured: { error: { kind, message, id: 'err_test' } },
  })

  const call: ScheduledCall = async (caller, args) => {
    const { action, session_id } = args as { action: string; session_id?: string }
    if (action === 'end') {
      ended.add(session_id!)
      return { is_error: false, structured: {} }
    }
    const key = String(args.idempotency_key)
    const before = turns.find((turn) => turn.key === key && turn.action === action)
    if (!before && session_id && ended.has(session_id)) return fault('conflict', 'the session was ended')
    const done = Promise.withResolvers<Record<string, unknown>>()
    const turn: Turn = before ?? {
      session_id: session_id ?? newSessionId(),
      turn_id: `cmd_${turns.length}`,
      key,
      text: String(args.prompt ?? args.message),
      action: action as Turn['action'],
      project_id: args.project_id as string | undefined,
      caller,
      end: (data = {}) => done.resolve({ final_text: 'done', stop_reason: 'end_turn', ...data }),
      over: done.promise,
    }
    if (!before) turns.push(turn)
    return {
      is_error: false,
      structured: { session_id: turn.session_id, turn_id: turn.turn_id, since_index: turns.indexOf(turn) },
    }
  }

  const follow: FollowSession = async function* (_session_id, since_index, signal) {
    const turn = turns[since_index]!
    const left = new Promise<undefined>((resolve) => {
      signal.addEventListener('abort', () => resolve(undefined), { once: true })
    })
    const data = await Promise.race([turn.over, left])
    if (data) yield [{ type: 'completion', data: { turn_id: turn.turn_id, ...data } }]
  }

  return { call, follow, turns, ended }
}
export type StubDoor = ReturnType<typeof createStubDoor>

const defaults = {
  name: 'test',
  prompt: 'true',
  time_zone: 'UTC',
  enabled: true,
  overlap_behavior: 'skip',
  session_behavior: 'resume',
  catch_up: 'skip',
} as const

async function addProject(store: Store): Promise<string> {
  const id = randomUUID()
  const none = JSON.stringify([])
  await insertProject(store.db, {
    id,
    name: id,
    description: '',
    container_type: 'base',
    init_git: false,
    workspace_isolation: false,
    protected_paths: none,
    network: 'none',
    limits: JSON.stringify({}),
    disabled_tools: none,
    mcp_servers: none,
    credential_refs: none,
    created_by: 'test',
  })
  return id
}

export async function addToken(
  store: Store,
  scope: string,
  expires_at: string | null = null,
): Promise<Caller> {
  const id = newTokenId()
  const hash = hashOf(newSecret())
  await insertToken(store.db, { id, name: 'test', scope, hash, created_by: 'test', expires_at })
  return { kind: 'token', id, name: 'test', scope: parseScope(scope), token_id: id, expires_at }
}

/** The managers that schedules need, as far as they need them. */
export function createScheduling(
  store: Store,
  clock: Clock,
  door: Pick<StubDoor, 'call' | 'follow'>,
  options: { queue_limit?: number; keep_runs?: number; history_days?: number; lease_ms?: number } = {},
) {
  const { queue_limit = 3, keep_runs = 1000, history_days = 30, lease_ms } = options
  const scheduler = createScheduler({
    store,
    log,
    clock,
    call: door.call,
    follow: door.follow,
    queue_limit,
    keep_runs,
    ...(lease_ms === undefined ? {} : { lease_ms }),
  })
  const schedules = createSchedules({
    store,
    scheduler,
    times,
    history_days,
    now: clock.now,
    projectNames: createProjectNames(store.db),
    projects: {
      async require(id) {
        const row = await projectById(store.db, id)
        if (!row) throw unknown('project', id)
        return row
      },
    },
    workspaces: {
      async resolve(_caller, project_id, { workspace_id }) {
        const row = await workspaceById(store.db, project_id, workspace_id!)
        if (!row) throw unknown('workspace', workspace_id!)
        return row as never
      },
    },
    sessions: {
      requireMaySpawn: async () => undefined,
      droidOf: (_project, droid) => droid ?? 'shell',
    },
  })
  return { scheduler, schedules }
}

export async function createRig(start: string, options: Parameters<typeof createScheduling>[3] = {}) {
  const database = await cloneDatabase()
  const store = await openStore({ database_url: new Secret(database.url), log })
  const clock = createClock(start)
  const door = createStubDoor()
  const { scheduler, schedules } = createScheduling(store, clock, door, options)
  const admin = await addToken(store, 'admin')
  const project_id = await addProject(store)
  await scheduler.start({ sole: false })

  const history = async (schedule_id: string) =>
    (await schedules.history({ schedule_id, limit: 200 })).runs.reverse()

  return {
    database_url: database.url,
    store,
    clock,
    door,
    scheduler,
    schedules,
    admin,
    project_id,
    project: () => addProject(store),
    removeProject: (id: string) => store.transact(async (trx) => await deleteProjectRows(trx, id)),
    /** A schedule of the one project, unless told otherwise. */
    create: (fields: Partial<ScheduleFields> & { cron_expr: string }, caller: Caller = admin) =>
      schedules.create(caller, { ...defaults, targets: [{ project_id }], ...fields }, 3),
    history,
    /** Sets the clock; all that is due by then has been claimed when it returns. */
    async at(to: string | number) {
      clock.set(to)
      await scheduler.once()
    },
    /** The turn number so-and-so of all, as soon as it was started. */
    turn: (number: number) => until(() => door.turns[number], { what: `turn ${number} is started` }),
    /** Ends a turn, and waits until its run has ended. */
    async finish(turn: Turn, data: Record<string, unknown> = {}) {
      turn.end(data)
      const sql = async () =>
        await store.db
          .selectFrom('schedule_runs')
          .select('status')
          .where('id', '=', turn.key)
          .where('ended_at', 'is not', null)
          .executeTakeFirst()
      return (await until(sql, { what: 'the run is over' })).status
    },
    async close() {
      for (const turn of door.turns) turn.end()
      await scheduler.close()
      await store.close()
      await database.drop()
    },
  }
}
export type Rig = Awaited<ReturnType<typeof createRig>>
