// Paused containers: by `container pause`, or directly in the engine. Nothing in them runs and nothing is lost: sessions keep
// their status and messages to them wait until `unpause`, `stop`, `start` with `recreate` or a delete.
import { Fault } from '../../fault.ts'
import type { KeyedQueue } from '../../lib/keyed-queue.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import { allProjects, saveContainer } from '../../store/rows/projects.ts'
import { requireProject } from '../project/require.ts'
import type { RequestDispatch } from '../session/dispatch.ts'

export const pausedReason = 'the container is paused; container unpause resumes it'

export const pausedFault = () =>
  new Fault('conflict', 'the container is paused', { hint: 'container unpause resumes it' })

type Deps = {
  store: Store
  runtime: Runtime
  serial: KeyedQueue
  requestDispatch: RequestDispatch
}

export function createPause({ store, runtime, serial, requestDispatch }: Deps) {
  const paused = new Set<string>()

  /** Records the state that the engine reports. */
  async function observe(project_id: string, is_paused: boolean): Promise<void> {
    if (is_paused === paused.has(project_id)) return
    if (is_paused) {
      paused.add(project_id)
      await saveContainer(store.db, project_id, { status: 'paused', reason: pausedReason })
      return
    }
    paused.delete(project_id)
    requestDispatch(project_id)
  }

  return {
    isPaused: (project_id: string): boolean => paused.has(project_id),
    requireNotPaused(project_id: string): void {
      if (paused.has(project_id)) throw pausedFault()
    },
    observe,
    async pause(project_id: string): Promise<void> {
      await requireProject(store.db, project_id)
      await serial(project_id, async () => {
        const state = await runtime.inspect(project_id)
        if (state?.status !== 'running' && state?.status !== 'paused')
          throw new Fault('conflict', 'the container is not running', { hint: 'container start starts it' })
        await runtime.pause(project_id)
        await observe(project_id, true)
      })
    },
    /** Does nothing if it is not paused. */
    async unpause(project_id: string): Promise<void> {
      await requireProject(store.db, project_id)
      await serial(project_id, async () => {
        await runtime.unpause(project_id)
        if (paused.has(project_id))
          await saveContainer(store.db, project_id, { status: 'running', reason: null })
        await observe(project_id, false)
      })
    },
    /** Reads the rows, until the engine is inspected. */
    async load(): Promise<void> {
      for (const { id, container_status } of await allProjects(store.db))
        if (container_status === 'paused') paused.add(id)
    },
  }
}
export type Pause = ReturnType<typeof createPause>
