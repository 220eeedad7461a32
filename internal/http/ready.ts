// Readiness: every named check passes within its deadline. All requests that arrive during a round of checks and shortly
// afterwards share its result.
import { Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'

type Check = (signal: AbortSignal) => Promise<void>
/** `refuses`: what is unavailable to callers while the check fails. */
export type Checks = Record<string, Check | { check: Check; refuses: readonly string[] }>

export type Readiness = {
  missing: string[]
  refused: string[]
  /** `unavailable`, naming the failed checks. The reasons are only in the log, because no token is needed here. */
  fault?: Fault
}

const limitMs = 3000
const readyForMs = 1000
const missingForMs = 200

async function within(check: Check): Promise<string | undefined> {
  const signal = AbortSignal.timeout(limitMs)
  const late = Promise.withResolvers<never>()
  const onAbort = () => late.reject(new Fault('timeout', `no answer within ${limitMs / 1000} s`))
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    await Promise.race([check(signal), late.promise])
    return undefined
  } catch (thrown) {
    return thrown instanceof Fault ? thrown.message : messageOf(thrown)
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

export function createReadiness(checks: Checks, log: Log): () => Promise<Readiness> {
  const named = Object.entries(checks).map(([name, given]) =>
    typeof given === 'function' ? { name, check: given, refuses: [] } : { name, ...given },
  )
  let running: Promise<Readiness> | undefined
  let last: { readiness: Readiness; until: number } | undefined
  let reported = ''

  async function round(): Promise<Readiness> {
    const reasons = await Promise.all(named.map(({ check }) => within(check)))
    const failed = named.filter((_check, at) => reasons[at] !== undefined)
    const missing = failed.map(({ name }) => name)
    const summary = missing.join(', ')
    if (summary !== reported) {
      if (summary)
        log.warn('not ready', Object.fromEntries(named.map(({ name }, at) => [name, reasons[at] ?? 'ok'])))
      else log.info('ready again')
    }
    reported = summary
    return {
      missing,
      refused: [...new Set(failed.flatMap(({ refuses }) => refuses))],
      ...(summary
        ? { fault: new Fault('unavailable', `not ready: ${summary}`, { retry_after_seconds: 1 }) }
        : {}),
    }
  }

  return async () => {
    if (last && performance.now() < last.until) return last.readiness
    running ??= round().finally(() => {
      running = undefined
    })
    const readiness = await running
    last = { readiness, until: performance.now() + (readiness.fault ? missingForMs : readyForMs) }
    return readiness
  }
}
