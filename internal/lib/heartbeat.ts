// Whether another process that we depend on answers, asked every few seconds. While it hangs, requests to it can be refused
// at once instead of each waiting for its whole deadline.
import { setTimeout as pause } from 'node:timers/promises'
import { type Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'
import type { Deadlines } from './deadlines.ts'

const everyMs = 2_000
/** While it does not answer: it is to be used again as soon as it does. */
const retryMs = 500

export type Heartbeat = {
  /** It answered something else: it does not hang, however long the question of a beat takes. */
  heard(): void
  /** Asks now; rejects with what is wrong. Those who ask at the same moment share one question. */
  check(): Promise<void>
  /** What to refuse a request with; undefined while it is not known to hang. */
  hung(): Fault | undefined
  /** Aborted when it is found to hang. */
  alarm(): AbortSignal
  /** Asks until the signal. */
  run(signal: AbortSignal): Promise<void>
}

export function createHeartbeat(options: {
  /** "the database" */
  what: string
  ask: () => Promise<void>
  /** Gives up what the question was asked on. */
  discard: () => void
  noAnswer: () => Fault
  /** No answer for this long is a hang. */
  patience_ms: number
  deadlines: Deadlines
  log: Log
}): Heartbeat {
  const { what, deadlines, log } = options
  let beating: Promise<void> | undefined
  let hung: Fault | undefined
  let alarm = new AbortController()
  let heard = 0

  function hangs(fault: Fault): void {
    if (!hung) log.error(`${what} does not answer, refusing requests to it until it does`)
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
      await deadlines.within(options.ask(), options.patience_ms, () => {
        if (performance.now() - heard < options.patience_ms) return undefined
        late = options.noAnswer()
        return late
      })
      answers()
    } catch (error) {
      options.discard()
      // Only what hangs is refused in advance: whatever else is wrong, a request learns at once.
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
    heard: () => {
      heard = performance.now()
    },
    check,
    hung: () => hung,
    alarm: () => alarm.signal,
    async run(signal) {
      while (!signal.aborted) {
        const wait = await check().then(
          () => everyMs,
          (error: unknown) => {
            log.debug(`failed to ask ${what}`, { reason: messageOf(error) })
            return retryMs
          },
        )
        await pause(wait, undefined, { signal, ref: false }).catch(() => undefined)
      }
    },
  }
}
