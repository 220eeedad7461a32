// Checks every few seconds whether a process that the server depends on answers. While it hangs, requests to it can be refused
// at once instead of each waiting for its deadline.
import { setTimeout as pause } from 'node:timers/promises'
import { type Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'
import type { Deadlines } from './deadlines.ts'

const intervalMs = 2_000
/** Interval while the process does not answer, so that it is used again soon after it does. */
const retryMs = 500

export type Heartbeat = {
  /** Call for any answer of the process: it does not hang, however long a check takes. */
  answered(): void
  /** Checks now; rejects with the error. Concurrent calls share one check. */
  check(): Promise<void>
  /** The fault to refuse requests with; undefined while the process is not known to hang. */
  hung(): Fault | undefined
  /** Aborted when the process is found to hang. */
  alarm(): AbortSignal
  /** Checks until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>
}

export function createHeartbeat(options: {
  /** "the database" */
  what: string
  ask: () => Promise<void>
  /** Discards the connection of a failed check. */
  discard: () => void
  noAnswer: () => Fault
  /** Time without an answer after which the process counts as hung. */
  timeout_ms: number
  deadlines: Deadlines
  log: Log
}): Heartbeat {
  const { what, deadlines, log } = options
  let beating: Promise<void> | undefined
  let hung: Fault | undefined
  let alarm = new AbortController()
  let answered_at = 0

  function hangs(fault: Fault): void {
    if (!hung) log.error(`${what} does not answer; refusing requests to it until it does`)
    hung = fault
    alarm.abort(fault)
  }

  function answers(): void {
    if (!hung) return
    log.info(`${what} answers again`)
    hung = undefined
    alarm = new AbortController()
  }

  async function beat(): Promise<void> {
    let late: Fault | undefined
    try {
      await deadlines.within(options.ask(), options.timeout_ms, () => {
        if (performance.now() - answered_at < options.timeout_ms) return undefined
        late = options.noAnswer()
        return late
      })
      answers()
    } catch (error) {
      options.discard()
      // Requests are refused in advance only during a hang: other errors reach each request immediately.
      if (late) hangs(late)
      else answers()
      throw error
    }
  }

  function check(): Promise<void> {
    beating ??= beat().finally(() => {
      beating = undefined
    })
    return beating
  }

  return {
    answered: () => {
      answered_at = performance.now()
    },
    check,
    hung: () => hung,
    alarm: () => alarm.signal,
    async run(signal) {
      while (!signal.aborted) {
        const wait = await check().then(
          () => intervalMs,
          (error: unknown) => {
            log.debug(`failed to check ${what}`, { reason: messageOf(error) })
            return retryMs
          },
        )
        await pause(wait, undefined, { signal, ref: false }).catch(() => undefined)
      }
    },
  }
}
