// Whether the server can do its work: every named check passes within its time. One round of checks serves all who ask
// while it runs and a moment longer.
import { Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'

type Check = (signal: AbortSignal) => Promise<void>
/** `refuses`: what callers cannot do while the check fails. */
export type Checks = Record<string, Check | { check: Check; refuses: readonly string[] }>

export type Readiness = {
  missing: string[]
  refused: string[]
  /** `unavailable`, naming what is missing. Why is in the log: this is asked without a token. */
  fault?: Fault
}

const limit_ms = 3000
const ready_for_ms = 1000
const missing_for_ms = 200

async function within(check: Check): Promise<string | undefined> {
  const signal = AbortSignal.timeout(limit_ms)
  const late = Promise.withResolvers<never>()
  const onAbort = () => late.reject(new Fault('timeout', `no answer within ${limit_ms / 1000} s`))
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
  let told = ''

  async function round(): Promise<Readiness> {
    const reasons = await Promise.all(named.map(({ check }) => within(check)))
    const failed = named.filter((_check, at) => reasons[at] !== undefined)
    const missing = failed.map(({ name }) => name)
    const summary = missing.join(', ')
    if (summary !== told) {
      if (summary)
        log.warn('not ready', Object.fromEntries(named.map(({ name }, at) => [name, reasons[at] ?? 'ok'])))
      else log.info('ready again')
    }
    told = summary
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
    last = { readiness, until: performance.now() + (readiness.fault ? missing_for_ms : ready_for_ms) }
    return readiness
  }
}
