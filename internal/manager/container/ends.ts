// Why a container ended that should run: recorded for its sessions, and counted as a failure unless an operator stopped it.
// The next start records it, by the reconciler or by a call that needs the container, so that every end is counted.
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
    if (!state) return `the container ${project.container_id === null ? 'does not exist yet' : 'was removed'}`
    // The engine also reports this if the kernel killed another process of the container.
    const killed = state.oom_killed && state.exit_code === 137
    const limit = project.container_memory_mb ?? effectiveLimits(config, project).memory_mb
    return `the container ended with exit code ${state.exit_code}${killed ? `: out of memory (limit ${limit} MiB)` : ''}`
  }

  /** An operator stopped it: not a failure of the container. */
  async function isExcused({ id, container_id }: ProjectWithContainer): Promise<boolean> {
    try {
      return container_id !== null && (await runtime.endedFromOutside(container_id))
    } catch (error) {
      log.warn('failed to read why a container ended', { project_id: id, reason: messageOf(error) })
      return false
    }
  }

  const failuresOf = (project_id: string): Promise<number> => containerFailures(store.db, project_id)

  /** Does nothing if it never ran, runs, or was stopped on request. The row is as it was before the start. */
  async function record(project: ProjectWithContainer, state: ContainerState | undefined): Promise<void> {
    const should_run = project.wanted === 'running' && project.container_id !== null
    if (!should_run || state?.status === 'running' || state?.status === 'paused') return
    const failures = (await failuresOf(project.id)) + ((await isExcused(project)) ? 0 : 1)
    await saveContainer(store.db, project.id, { failures, last_end: reasonOf(project, state) })
  }

  return { reasonOf, failuresOf, record }
}
export type ContainerEnds = ReturnType<typeof createContainerEnds>
