// When a schedule is due, as pure functions around croner: five or six fields, names, `@daily` and the like, in a time
// zone. At a change of the clocks a fixed time that does not exist runs when the gap ends, one that exists twice runs
// once, and intervals go on evenly.
import { setImmediate as turn } from 'node:timers/promises'
import { Cron } from 'croner'
import { Fault, messageOf } from '../../fault.ts'

export type Timing = { cron_expr: string; time_zone: string }

const remembered = new Map<string, Cron>()
const rememberAtMost = 2_000

/** Reading an expression costs more than asking it: those in use are kept. */
function read({ cron_expr, time_zone }: Timing): Cron {
  const key = `${time_zone} ${cron_expr}`
  const known = remembered.get(key)
  if (known) return known
  const cron = new Cron(cron_expr, { timezone: time_zone, mode: '5-or-6-parts', paused: true })
  if (remembered.size >= rememberAtMost) remembered.delete(remembered.keys().next().value!)
  remembered.set(key, cron)
  return cron
}

const fieldsHint =
  'five fields (minute hour day month weekday), six with seconds in front, or @hourly, @daily, @weekly, @monthly, @yearly'
const zoneHint = 'a name of the IANA database, for example UTC, Europe/Berlin or America/New_York'

/** What to do about a problem that `checkTiming` found. */
export const timingHint = (problem: string): string =>
  problem.startsWith('time_zone:') ? zoneHint : fieldsHint

/** Refuses what cannot be read, and what would never run. For the latter it may take a tenth of a second. */
export function checkTiming(timing: Timing, now: number): void {
  const { cron_expr, time_zone } = timing
  try {
    new Intl.DateTimeFormat('en', { timeZone: time_zone })
  } catch {
    throw new Fault('invalid', `time_zone: there is no time zone "${time_zone}"`)
  }
  const words = cron_expr.trim().split(/\s+/)
  // Croner would also read one point in time, or a year as a seventh field.
  if (!/^@[a-z]+$/i.test(cron_expr.trim()) && words.length !== 5 && words.length !== 6)
    throw new Fault('invalid', `cron_expr: "${cron_expr}" has not five or six fields`)
  let next: Date | null
  try {
    next = read(timing).nextRun(new Date(now))
  } catch (error) {
    const why = messageOf(error).replace(/^CronPattern: /, '')
    throw new Fault('invalid', `cron_expr: "${cron_expr}" cannot be read: ${why}`, { cause: error })
  }
  if (!next) throw new Fault('invalid', `cron_expr: "${cron_expr}" never comes to pass`)
}

/** The first time after `after`; nothing if there is none any more. */
export function nextTime(timing: Timing, after: number): number | undefined {
  return read(timing).nextRun(new Date(after))?.getTime()
}

/** As many as are found by then, by the clock of `performance`. */
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

/** What is due by now. `missed` are those that nobody was there for; `first` is their first. */
export type Due = {
  times: number[]
  missed: { first: number; count: number } | undefined
  next: number | undefined
}

/** What was missed is counted one by one, up to this, some in each turn of the event loop. */
export const mostCounted = 1000
const countedInTurn = 50

/** Since `first`, the time that the schedule waits for. What is later than `grace_ms` has been missed. */
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
    // Too many to be counted one by one.
    if (at !== undefined && at < now - grace_ms) at = nextTime(timing, now - grace_ms - 1)
  }
  for (; at !== undefined && at <= now; at = nextTime(timing, at)) times.push(at)
  return { times, missed, next: at }
}
