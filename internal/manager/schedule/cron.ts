// When a schedule is due, as pure functions around croner: five or six fields, names, or `@daily` and the like, in a time zone.
// At a clock change, a fixed time that does not exist runs when the gap ends, a time that exists twice runs once, and intervals
// continue evenly.
import { setImmediate as turn } from 'node:timers/promises'
import { Cron } from 'croner'
import { Fault, messageOf } from '../../fault.ts'

export type Timing = { cron_expr: string; time_zone: string }

const cache = new Map<string, Cron>()
const cachedAtMost = 2_000

/** Parsing an expression costs more than evaluating it: parsed expressions are cached. */
function parse({ cron_expr, time_zone }: Timing): Cron {
  const key = `${time_zone} ${cron_expr}`
  const known = cache.get(key)
  if (known) return known
  const cron = new Cron(cron_expr, { timezone: time_zone, mode: '5-or-6-parts', paused: true })
  if (cache.size >= cachedAtMost) cache.delete(cache.keys().next().value!)
  cache.set(key, cron)
  return cron
}

const fieldsHint =
  'use five fields (minute hour day month weekday), six with seconds first, or @hourly, @daily, @weekly, @monthly, @yearly'
const zoneHint =
  'use a name of the IANA time zone database, for example UTC, Europe/Berlin or America/New_York'

/** The hint for a problem that `checkTiming` found. */
export const timingHint = (problem: string): string =>
  problem.startsWith('time_zone:') ? zoneHint : fieldsHint

/** Throws if the expression is invalid or has no future occurrence. The latter may take 100 ms to find out. */
export function checkTiming(timing: Timing, now: number): void {
  const { cron_expr, time_zone } = timing
  try {
    new Intl.DateTimeFormat('en', { timeZone: time_zone })
  } catch {
    throw new Fault('invalid', `time_zone: unknown time zone "${time_zone}"`)
  }
  const words = cron_expr.trim().split(/\s+/)
  // Croner also accepts a single date, or a year as a seventh field.
  if (!/^@[a-z]+$/i.test(cron_expr.trim()) && words.length !== 5 && words.length !== 6)
    throw new Fault('invalid', `cron_expr: "${cron_expr}" must have five or six fields`)
  let next: Date | null
  try {
    next = parse(timing).nextRun(new Date(now))
  } catch (error) {
    const why = messageOf(error).replace(/^CronPattern: /, '')
    throw new Fault('invalid', `cron_expr: "${cron_expr}" is invalid: ${why}`, { cause: error })
  }
  if (!next) throw new Fault('invalid', `cron_expr: "${cron_expr}" has no future occurrence`)
}

/** The first time after `after`; undefined if there is none. */
export function nextTime(timing: Timing, after: number): number | undefined {
  return parse(timing).nextRun(new Date(after))?.getTime()
}

/** Up to `count` times, as many as are found before `by` on the clock of `performance`. */
export function nextTimes(
  timing: Timing,
  after: number,
  count: number,
  by = Number.POSITIVE_INFINITY,
): string[] {
  const times: string[] = []
  let last: number | undefined = after
  while (times.length < count && performance.now() < by) {
    last = nextTime(timing, last)
    if (last === undefined) break
    times.push(new Date(last).toISOString())
  }
  return times
}

/** What is due by now. `missed` are the times at which no server was running; `first` is the first of them. */
export type Due = {
  times: number[]
  missed: { first: number; count: number } | undefined
  next: number | undefined
}

/** Missed times are counted one by one up to this number, some in each turn of the event loop. */
export const mostCounted = 1000
const countedInTurn = 50

/** From `first`, the next time of the schedule. Times longer ago than `grace_ms` were missed. */
export async function dueTimes(timing: Timing, first: number, now: number, grace_ms: number): Promise<Due> {
  const times: number[] = []
  let missed: Due['missed']
  let at: number | undefined = first
  if (first < now - grace_ms) {
    missed = { first, count: 0 }
    for (; at !== undefined && at < now - grace_ms && missed.count < mostCounted; at = nextTime(timing, at)) {
      missed.count += 1
      if (missed.count % countedInTurn === 0) await turn()
    }
    // Too many to count one by one.
    if (at !== undefined && at < now - grace_ms) at = nextTime(timing, now - grace_ms - 1)
  }
  for (; at !== undefined && at <= now; at = nextTime(timing, at)) times.push(at)
  return { times, missed, next: at }
}
