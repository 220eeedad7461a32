// Writes that claimed runs were started and how they ended, in batches. The end of a run starts the next queued run of its
// target.
import { createBatch } from '../../lib/batch.ts'
import type { Store } from '../../store/open.ts'
import {
  endRuns,
  promoteQueued,
  type RunRow,
  type RunStart,
  startRuns,
  trimRuns,
} from '../../store/rows/schedule/runs.ts'
import { lockSchedules } from '../../store/rows/schedule/schedules.ts'
import type { Ending } from './outcome.ts'

type Deps = {
  store: Store
  now: () => number
  lease: () => { claimed_by: string; lease_until: string }
  keep_runs: number
}
type Ended = { run: RunRow; ending: Ending }

export function createEndings({ store, now, lease, keep_runs }: Deps) {
  const starting = createBatch<RunStart, void>({
    commit: async (starts) => {
      await startRuns(store.db, starts)
      return starts.map(() => undefined)
    },
  })

  async function endAll(ended: Ended[]): Promise<(RunRow | undefined)[]> {
    const schedule_ids = [...new Set(ended.map(({ run }) => run.schedule_id))]
    const target_ids = ended.flatMap(({ run }) => run.target_id ?? [])
    const promoted = await store.transact(async (trx) => {
      // First, so that no run is queued behind one that has just ended.
      await lockSchedules(trx, schedule_ids)
      await endRuns(
        trx,
        ended.map(({ run, ending }) => ({ id: run.id, ...ending })),
        new Date(now()).toISOString(),
      )
      await trimRuns(trx, schedule_ids, keep_runs)
      return await promoteQueued(trx, target_ids, lease())
    })
    return ended.map(({ run }) => {
      // Each promoted run is returned to one caller.
      const at = promoted.findIndex((next) => next.target_id === run.target_id)
      return at < 0 ? undefined : promoted.splice(at, 1)[0]
    })
  }

  const ending = createBatch({ commit: endAll })
  return {
    started: starting.add,
    /** Ends a run once; returns the queued run that starts now, if any. */
    end: (run: RunRow, how: Ending) => ending.add({ run, ending: how }),
  }
}
