// The scheduler: sleeps until the next due time that rows tell, claims what is due, and executes what it claimed. A change
// of any schedule, by whichever server, wakes it. It keeps nothing that rows do not have: after a crash another scheduler,
// or this one after its restart, takes over the runs whose lease has ended. A scheduler that knows to be the only one
// does not wait for that.
import { randomBytes } from 'node:crypto'
import { messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Db, Store } from '../../store/open.ts'
import type { RunRow } from '../../store/rows/schedule/runs.ts'
import { nextWakes, type ScheduleRow } from '../../store/rows/schedule/schedules.ts'
import { onTokenChange } from '../access/tokens.ts'
import { createClaims } from './claims.ts'
import { createRunner, type FollowSession, type ScheduledCall } from './run.ts'

/** Replaced in tests. `after` returns what cancels it. */
export type Clock = { now(): number; after(ms: number, go: () => void): () => void }

export const realClock: Clock = {
  now: Date.now,
  after(ms, go) {
    const timer = setTimeout(go, ms)
    return () => clearTimeout(timer)
  },
}

export type SchedulerDeps = {
  store: Store
  call: ScheduledCall
  follow: FollowSession
  queue_limit: number
  keep_runs: number
  log: Log
  clock?: Clock
  lease_ms?: number
}

const channel = 'oubliette_schedules'
/** Timers do not see that the machine slept or that its clock was set: it looks at the clock this often. */
const longestSleep = 300_000
const batch = 100
const startAtOnce = 12
/** After a failure; longer after each further one. The end of an outage is told by the listening connection. */
const pauses = { first: 500, longest: 10_000 }

/** At most so many calls at a time: ten thousand runs that are due in one second must not take every database connection. */
function createConcurrencyLimit(most: number) {
  const queue: (() => void)[] = []
  let waiting: { length: number; resolve: () => void }[] = []
  let taken = 0

  function leave(): void {
    const next = queue.shift()
    if (next) next()
    else taken -= 1
    for (const one of waiting) if (queue.length < one.length) one.resolve()
    waiting = waiting.filter((one) => queue.length >= one.length)
  }

  async function run<T>(work: () => Promise<T>): Promise<T> {
    if (taken < most) taken += 1
    else await new Promise<void>((resolve) => queue.push(resolve))
    try {
      return await work()
    } finally {
      leave()
    }
  }

  return Object.assign(run, {
    /** Resolves when fewer than `length` calls are queued. */
    async queueShorterThan(length: number): Promise<void> {
      if (queue.length >= length) await new Promise<void>((resolve) => waiting.push({ length, resolve }))
    },
  })
}

export function createScheduler(deps: SchedulerDeps) {
  const { store, log, clock = realClock, lease_ms = 15_000 } = deps
  const claims = createClaims({
    ...deps,
    now: clock.now,
    lease_ms,
    claimed_by: `scheduler_${randomBytes(8).toString('hex')}`,
  })
  const execute = createRunner({ ...deps, now: clock.now, started: claims.started })
  const limit = createConcurrencyLimit(startAtOnce)
  const closing = new AbortController()
  const held = new Map<string, { over: Promise<void>; stop: AbortController }>()
  const unlisten: (() => Promise<void>)[] = []
  let looking: Promise<void> | undefined
  let again = false
  let failures = 0
  let cancelWake = () => {}
  let cancelBeat: (() => void) | undefined

  function launch(run: RunRow, schedule?: ScheduleRow): void {
    if (closing.signal.aborted || held.has(run.id)) return
    const stop = new AbortController()
    const signal = AbortSignal.any([closing.signal, stop.signal])
    const work = async () => {
      try {
        const begin = <T>(step: () => Promise<T>) =>
          limit(async () => {
            signal.throwIfAborted()
            return await step()
          })
        const ending = await execute(run, schedule, signal, begin)
        const next = ending && (await claims.end(run, ending))
        if (next) launch(next)
      } catch (error) {
        // The row stays as it is, and its lease is renewed no more: somebody takes it over.
        if (!signal.aborted) log.warn('a run is left for another try', { run_id: run.id, error })
      } finally {
        held.delete(run.id)
      }
    }
    held.set(run.id, { stop, over: Promise.resolve().then(work) })
    cancelBeat ??= clock.after(lease_ms / 3, beat)
  }

  function beat(): void {
    cancelBeat = undefined
    if (held.size === 0 || closing.signal.aborted) return
    const ids = [...held.keys()]
    claims
      .renew(ids)
      .then((still) => {
        // Not ours any more: over, taken over, or gone with its project.
        for (const id of ids) if (!still.has(id)) held.get(id)?.stop.abort()
      })
      .catch((error: unknown) => log.warn('leases of runs are not renewed', { reason: messageOf(error) }))
    cancelBeat = clock.after(lease_ms / 3, beat)
  }

  /** Tokens may have been revoked without our being told: at the start, and after a gap. */
  let suspect = true

  async function disable(): Promise<void> {
    suspect = false
    for (const { id, reason } of await claims.disableOrphaned())
      log.info('a schedule is disabled', { schedule_id: id, reason })
  }

  async function takeOver(): Promise<void> {
    for (const run of await claims.takeOver([...held.keys()], batch)) {
      log.info('a run is taken over', { run_id: run.id, schedule_id: run.schedule_id })
      launch(run)
    }
  }

  /** Whether something was left that somebody else has locked. */
  async function claim(wait: boolean): Promise<boolean> {
    const { schedules, claimed } = await claims.due(wait ? 1 : batch, wait)
    for (const { run, schedule } of claimed) launch(run, schedule)
    return schedules === 0
  }

  /** Everything that is to be done now. Returns how long there is nothing more to do. */
  async function look(): Promise<number> {
    let locked = false
    while (!closing.signal.aborted) {
      if (suspect) await disable()
      await limit.queueShorterThan(batch)
      const { due, expiry, lease } = await nextWakes(store.db, [...held.keys()])
      const left = (time: string | null) => (time === null ? longestSleep : Date.parse(time) - clock.now())
      if (left(expiry) <= 0) await disable()
      if (left(lease) <= 0) await takeOver()
      if (left(due) <= 0) {
        // Locked by somebody, who may claim it, or may only end a run of it: once more, in line. Or its token was revoked.
        suspect ||= locked
        locked = await claim(locked)
      } else if (Math.min(left(expiry), left(lease)) > 0)
        return Math.min(left(due), left(expiry), left(lease), longestSleep)
    }
    return longestSleep
  }

  /** Looks now; who asks while it looks gets another look. */
  function once(): Promise<void> {
    again = true
    looking ??= (async () => {
      let sleep = 0
      while (again && !closing.signal.aborted) {
        again = false
        cancelWake()
        try {
          sleep = await look()
          failures = 0
        } catch (error) {
          if (closing.signal.aborted) return
          log.warn('schedules wait for the database', { reason: messageOf(error) })
          sleep = Math.min(pauses.first * 2 ** failures, pauses.longest)
          failures += 1
        }
      }
      if (!closing.signal.aborted) cancelWake = clock.after(sleep, () => void once())
    })().finally(() => {
      looking = undefined
    })
    return looking
  }

  return {
    once,
    /** Something about a schedule has changed, or will have when the transaction commits. */
    changed: async (schedule_id: string, trx?: Db) => await store.notify(channel, schedule_id, trx),
    async trigger(schedule_id: string): Promise<RunRow[] | undefined> {
      const runs = await claims.trigger(schedule_id)
      for (const run of runs ?? []) if (run.status === 'running') launch(run)
      return runs
    },
    /** `sole`: no other scheduler uses the database, so whatever is claimed was claimed by one that is dead. */
    async start({ sole }: { sole: boolean }): Promise<void> {
      if (sole) await claims.releaseAll()
      const wake = () => void once()
      const doubt = () => {
        suspect = true
        wake()
      }
      unlisten.push(await store.listen(channel, wake, doubt), await onTokenChange(store, doubt))
      await once()
    },
    async close(): Promise<void> {
      closing.abort()
      cancelWake()
      cancelBeat?.()
      for (const stop of unlisten) await stop()
      await looking
      await Promise.allSettled([...held.values()].map(({ over }) => over))
      await claims.release()
      await store.notify(channel, '')
    },
  }
}
export type Scheduler = ReturnType<typeof createScheduler>
