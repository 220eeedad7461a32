// The queue of those who want to spawn. However many ask at once, a project has one transaction under way, so that the
// requests of others find a connection too; and when one is refused because a limit is reached, so are all who were
// waiting for the same when it was looked up. A bomb of spawns costs the bomber's time, not the database's.
import type { Caller } from '../../../auth/caller.ts'
import { Fault } from '../../../fault.ts'
import { createKeyedQueue } from '../../../lib/keyed-queue.ts'

export function createSpawnTurns() {
  const turns = createKeyedQueue()
  const refusals = new Map<string, { looked_ms: number; fault: Fault }>()

  return async <T>(project_id: string, { session_id }: Caller, spawn: () => Promise<T>): Promise<T> => {
    const asked_ms = performance.now()
    // Depth and tree are those of the one who asks.
    const key = `${project_id} ${session_id ?? ''}`
    return await turns(project_id, async () => {
      const before = refusals.get(key)
      if (before && before.looked_ms > asked_ms) throw before.fault
      refusals.delete(key)
      const looked_ms = performance.now()
      try {
        return await spawn()
      } catch (error) {
        if (error instanceof Fault && error.kind === 'exhausted')
          refusals.set(key, { looked_ms, fault: error })
        throw error
      }
    })
  }
}
