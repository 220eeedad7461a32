// Creates a project and clones its remote. The clone runs in the background; a caller may wait for it.
import type { Caller } from '../../auth/caller.ts'
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Containers } from '../container/containers.ts'
import type { Progress } from '../container/starts.ts'
import type { ProjectFields, Projects } from './projects.ts'

type Wanted = ProjectFields & { idempotency_key?: string }

export function createProjectCreation(deps: { projects: Projects; containers: Containers; log: Log }) {
  const { projects, containers, log } = deps

  return async function create(caller: Caller, fields: Wanted, how: { wait: boolean; progress: Progress }) {
    const created = await projects.create(caller, fields)
    const { project_id, name } = created
    if (!fields.remote_url) return created
    const started = containers.start(project_id, { progress: how.progress })
    if (!how.wait) {
      started.catch((error: unknown) =>
        log.warn('failed to start the container of a new project', { project_id, reason: messageOf(error) }),
      )
      return created
    }
    const failed = (reason: string, kind: Fault['kind'] = 'unavailable', cause?: unknown) =>
      new Fault(
        kind,
        `project "${name}" (${project_id}) was created, but its remote was not cloned: ${reason}`,
        {
          hint: `container start with project_id ${project_id} tries again; project delete removes the project`,
          cause,
        },
      )
    await started.catch((error: unknown) => {
      throw failed(messageOf(error), error instanceof Fault ? error.kind : 'internal', error)
    })
    const after = await projects.get(project_id)
    const { state, prepare_error } = after.default_workspace
    if (state !== 'ready') throw failed(prepare_error ?? `the workspace is ${state}`)
    return after
  }
}
