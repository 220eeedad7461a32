// What sessions still have to say from before their container started again. Whoever starts one anew waits until that is
// in the log, so that the end of the former life is not taken for the end of the new one.
import { setTimeout as pause } from 'node:timers/promises'

const patience_ms = 5_000

export type PreviousRuns = ReturnType<typeof createPreviousRuns>

export function createPreviousRuns() {
  const lives = new Map<string, { until: number; told: PromiseWithResolvers<void> }>()

  function end(session_id: string): void {
    lives.get(session_id)?.told.resolve()
    lives.delete(session_id)
  }

  return {
    /** Events up to this number are of a life that is over. */
    begin(session_id: string, until: number): void {
      end(session_id)
      lives.set(session_id, { until, told: Promise.withResolvers() })
    },
    end,
    until: (session_id: string): number => lives.get(session_id)?.until ?? -1,
    /** Settles when all of it is in the log. A container that does not tell it is not waited for. */
    async told(session_id: string): Promise<void> {
      const life = lives.get(session_id)
      if (life) await Promise.race([life.told.promise, pause(patience_ms, undefined, { ref: false })])
    },
  }
}
