// How a container ended that should run: told to its sessions, and counted as a failure unless an operator did it. It is
// noted by whoever starts the container next, the reconciler or a call that needs it, so that no end goes uncounted.
import type { Config } from '../../config/load.ts'
import { messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { ContainerState, Runtime } from '../../runtime/runtime.ts'
import type { Store } from '../../store/open.ts'
import { containerFailures, type ProjectWithContainer, saveContainer } from '../../store/rows/projects.ts'
import { effectiveLimits } from '../project/projects.ts'

type Deps = { store: Store; config: Config; runtime: Runtime; log: Log }

export function createContainerEnds({ store, config, runtime, log }: Deps) {
  function reasonOf(project: ProjectWithContainer, state: ContainerState | undefined): string {
    if (!state) return 'the container was removed'
    // The engine also says so when it was another process that the kernel ended.
    const killed = state.oom_killed && state.exit_code === 137
    const limit = project.container_memory_mb ?? effectiveLimits(config, project).memory_mb
    return `the container ended with exit code ${state.exit_code}${killed ? `: out of memory (limit ${limit} MiB)` : ''}`
  }

  /** What an operator did is no failure of the container. */
  async function isExcused({ id, container_id }: ProjectWithContainer): Promise<boolean> {
    try {
      return container_id !== null && (await runtime.endedFromOutside(container_id))
    } catch (error) {
      log.warn('failed to read how a container ended', { project_id: id, reason: messageOf(error) })
      return false
    }
  }

  const failuresOf = (project_id: string): Promise<number> => containerFailures(store.db, project_id)

  /** Nothing if it never ran, runs, or was stopped on purpose. The row is as it was before the start. */
  async function note(project: ProjectWithContainer, state: ContainerState | undefined): Promise<void> {
    const should_run = project.wanted === 'running' && project.container_id !== null
    if (!should_run || state?.status === 'running' || state?.status === 'paused') return
    const failures = (await failuresOf(project.id)) + ((await isExcused(project)) ? 0 : 1)
    await saveContainer(store.db, project.id, { failures, last_end: reasonOf(project, state) })
  }

  return { reasonOf, failuresOf, note }
}
export type ContainerEnds = ReturnType<typeof createContainerEnds>
