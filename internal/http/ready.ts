// Whether the server can do its work: every named check passes within its time. Requests that ask at the same moment
// share one round of checks.
import { Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'

export type Checks = Record<string, (signal: AbortSignal) => Promise<void>>

const limit_ms = 3000

async function within(check: (signal: AbortSignal) => Promise<void>): Promise<string | undefined> {
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

/** Throws `unavailable`, naming what is missing. Why is in the log: this is asked without a token. */
export function createReadiness(checks: Checks, log: Log): () => Promise<void> {
  let running: Promise<void> | undefined
  async function round() {
    const names = Object.keys(checks)
    const reasons = await Promise.all(names.map((name) => within(checks[name]!)))
    const missing = names.filter((_name, at) => reasons[at] !== undefined)
    if (missing.length === 0) return
    log.warn('not ready', Object.fromEntries(names.map((name, at) => [name, reasons[at] ?? 'ok'])))
    throw new Fault('unavailable', `not ready: ${missing.join(', ')}`, { retry_after_seconds: 1 })
  }
  return () => {
    running ??= round().finally(() => {
      running = undefined
    })
    return running
  }
}
