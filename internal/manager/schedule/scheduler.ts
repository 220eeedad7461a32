// The scheduler: sleeps until the next due time in the rows, claims what is due and executes it. A change of any schedule by any
// server wakes it. All its state is in rows: after a crash another scheduler, or this one after its restart, takes over the
// runs whose lease has expired. A scheduler that is the only one does not wait for the leases.
import { randomBytes } from 'node:crypto'
import { messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Db, Store } from '../../store/open.ts'
import type { RunRow } from '../../store/rows/schedule/runs.ts'
import { nextWakes, type ScheduleRow } from '../../store/rows/schedule/schedules.ts'
import { onTokenChange } from '../access/tokens.ts'
import { createClaims } from './claims.ts'
import { createRunner, type FollowSession, type ScheduledCall } from './run.ts'

/** Replaced in tests. `after` returns a function that cancels the timer. */
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
/** Timers do not notice that the machine slept or that its clock was set: the clock is read at least this often. */
const longestSleep = 300_000
const batch = 100
const startAtOnce = 12
/** Delay after a failure, doubled after each further one. The listening connection reports the end of an outage. */
const backoff = { first: 500, longest: 10_000 }

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
  let running: Promise<void> | undefined
  let again = false
  let failures = 0
  let cancelWake = () => {}
  let cancelRenewal: (() => void) | undefined

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
        // The row stays and its lease expires: then a scheduler takes the run over.
        if (!signal.aborted)
          log.warn('failed to execute a run, retrying after its lease expires', { run_id: run.id, error })
      } finally {
        held.delete(run.id)
      }
    }
    held.set(run.id, { stop, over: Promise.resolve().then(work) })
    cancelRenewal ??= clock.after(lease_ms / 3, renewLeases)
  }

  function renewLeases(): void {
    cancelRenewal = undefined
    if (held.size === 0 || closing.signal.aborted) return
    const ids = [...held.keys()]
    claims
      .renew(ids)
      .then((still) => {
        // No longer ours: ended, taken over, or deleted with its project.
        for (const id of ids) if (!still.has(id)) held.get(id)?.stop.abort()
      })
      .catch((error: unknown) => log.warn('failed to renew the leases of runs', { reason: messageOf(error) }))
    cancelRenewal = clock.after(lease_ms / 3, renewLeases)
  }

  /** Notifications of revoked tokens may have been missed: at the start, and after a gap. */
  let suspect = true

  async function disable(): Promise<void> {
    suspect = false
    for (const { id, reason } of await claims.disableOrphaned())
      log.info('disabled a schedule', { schedule_id: id, reason })
  }

  async function takeOver(): Promise<void> {
    for (const run of await claims.takeOver([...held.keys()], batch)) {
      log.info('took over a run', { run_id: run.id, schedule_id: run.schedule_id })
      launch(run)
    }
  }

  /** Returns whether due schedules were left because another transaction has locked them. */
  async function claim(wait: boolean): Promise<boolean> {
    const { schedules, claimed } = await claims.due(wait ? 1 : batch, wait)
    for (const { run, schedule } of claimed) launch(run, schedule)
    return schedules === 0
  }

  /** Does everything that is due. Returns the time in milliseconds until more is due. */
  async function runDue(): Promise<number> {
    let locked = false
    while (!closing.signal.aborted) {
      if (suspect) await disable()
      await limit.queueShorterThan(batch)
      const { due, expiry, lease } = await nextWakes(store.db, [...held.keys()])
      const left = (time: string | null) => (time === null ? longestSleep : Date.parse(time) - clock.now())
      if (left(expiry) <= 0) await disable()
      if (left(lease) <= 0) await takeOver()
      if (left(due) <= 0) {
        // Locked by a transaction that claims it or only ends a run of it: try again and wait for the lock. Or its token was
        // revoked.
        suspect ||= locked
        locked = await claim(locked)
      } else if (Math.min(left(expiry), left(lease)) > 0)
        return Math.min(left(due), left(expiry), left(lease), longestSleep)
    }
    return longestSleep
  }

  /** Runs what is due now; a call while it runs makes it run once more. */
  function once(): Promise<void> {
    again = true
    running ??= (async () => {
      let sleep = 0
      while (again && !closing.signal.aborted) {
        again = false
        cancelWake()
        try {
          sleep = await runDue()
          failures = 0
        } catch (error) {
          if (closing.signal.aborted) return
          log.warn('failed to read schedules, retrying', { reason: messageOf(error) })
          sleep = Math.min(backoff.first * 2 ** failures, backoff.longest)
          failures += 1
        }
      }
      if (!closing.signal.aborted) cancelWake = clock.after(sleep, () => void once())
    })().finally(() => {
      running = undefined
    })
    return running
  }

  return {
    once,
    /** A schedule has changed, or changes when the transaction commits. */
    changed: async (schedule_id: string, trx?: Db) => await store.notify(channel, schedule_id, trx),
    async trigger(schedule_id: string): Promise<RunRow[] | undefined> {
      const runs = await claims.trigger(schedule_id)
      for (const run of runs ?? []) if (run.status === 'running') launch(run)
      return runs
    },
    /** `sole`: no other scheduler uses the database, so all claims are of schedulers that have ended. */
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
      cancelRenewal?.()
      for (const stop of unlisten) await stop()
      await running
      await Promise.allSettled([...held.values()].map(({ over }) => over))
      await claims.release()
      await store.notify(channel, '')
    },
  }
}
export type Scheduler = ReturnType<typeof createScheduler>
