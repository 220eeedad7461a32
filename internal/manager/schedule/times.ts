// Computes when schedules run, for callers: on a worker thread with a deadline, because callers choose the cost of an
// expression. The scheduler itself only needs the next time of a checked expression, which is cheap.

import { createWorkerPool, Refused, TooCostly } from '../../event-loop/worker-pool.ts'
import { Fault } from '../../fault.ts'
import { type Timing, timingHint } from './cron.ts'
import type { TimesJob } from './thread.ts'

const deadlineMs = 1_000
const budgetMs = 200

export type ScheduleTimes = ReturnType<typeof createScheduleTimes>

export function createScheduleTimes() {
  const pool = createWorkerPool({
    what: 'reading a cron expression',
    script: new URL('./thread.ts', import.meta.url),
    threads: 1,
    deadline_ms: deadlineMs,
    memory_mb: 64,
  })
  const run = (tenant: string, job: TimesJob) => pool.run(tenant, job, 1024)

  return {
    /** Throws if the expression is invalid or has no future occurrence. */
    async check(tenant: string, timing: Timing, now: number): Promise<void> {
      await run(tenant, { check: timing, now }).catch((error: unknown) => {
        if (error instanceof Refused)
          throw new Fault('invalid', error.message, { hint: timingHint(error.message), cause: error })
        throw error
      })
    },
    /** The next times of each expression; fewer if they take long to find. */
    async next(tenant: string, timings: Timing[], after: number, count: number): Promise<string[][]> {
      if (count === 0) return timings.map(() => [])
      try {
        const job = { timings, after, count, budget_ms: budgetMs }
        return (await run(tenant, job)) as string[][]
      } catch (error) {
        // A list of schedules is useful without their next times.
        if (error instanceof TooCostly || error instanceof Refused) return timings.map(() => [])
        throw error
      }
    },
    close: () => pool.close(),
  }
}
