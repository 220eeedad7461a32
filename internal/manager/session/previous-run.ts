// Events of sessions from before their container restarted that are not committed yet. A new start of such a session waits for
// them, so that the end of the previous run is not taken for the end of the new one.
import { setTimeout as pause } from 'node:timers/promises'

const longestWaitMs = 5_000

export type PreviousRuns = ReturnType<typeof createPreviousRuns>

export function createPreviousRuns() {
  const runs = new Map<string, { until: number; committed: PromiseWithResolvers<void> }>()

  function end(session_id: string): void {
    runs.get(session_id)?.committed.resolve()
    runs.delete(session_id)
  }

  return {
    /** Events up to this sequence number belong to the previous run. */
    begin(session_id: string, until: number): void {
      end(session_id)
      runs.set(session_id, { until, committed: Promise.withResolvers() })
    },
    end,
    until: (session_id: string): number => runs.get(session_id)?.until ?? -1,
    /** Resolves when all of them are committed, or after a few seconds if the container does not send them. */
    async committed(session_id: string): Promise<void> {
      const run = runs.get(session_id)
      if (run) await Promise.race([run.committed.promise, pause(longestWaitMs, undefined, { ref: false })])
    },
  }
}
