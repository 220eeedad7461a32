// The worker thread of `times.ts`. Finding out that an expression has no future occurrence takes 100 ms, and callers can send
// any number of expressions.

import { type Outcome, serveJobs } from '../../event-loop/worker-thread.ts'
import { messageOf } from '../../fault.ts'
import { checkTiming, nextTimes, type Timing } from './cron.ts'

export type TimesJob =
  | { check: Timing; now: number }
  /** The next times of each, as many as can be found within the budget. */
  | { timings: Timing[]; after: number; count: number; budget_ms: number }

function answer(job: TimesJob): Outcome {
  try {
    if ('check' in job) return { value: checkTiming(job.check, job.now) }
    const by = performance.now() + job.budget_ms
    return { value: job.timings.map((timing) => nextTimes(timing, job.after, job.count, by)) }
  } catch (error) {
    return { problem: messageOf(error) }
  }
}

serveJobs(answer)
