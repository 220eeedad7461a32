// Fails sessions whose container has no supervisor for a minute, so that they do not stay `running` for ever.
import type { Log } from '../../log.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Store } from '../../store/open.ts'
import { projectsWithActiveSessions } from '../../store/rows/session/sessions.ts'
import type { SessionEnds } from '../session/ends.ts'
import type { Containers } from './containers.ts'

const patienceMs = 60_000

type Deps = {
  store: Store
  relay: Relay
  containers: Containers
  ends: Pick<SessionEnds, 'failAll'>
  log: Log
}

export function createUnsupervised({ store, relay, containers, ends, log }: Deps) {
  /** Since when each project has no supervisor. */
  const since = new Map<string, number>()

  return async function sweep(): Promise<void> {
    const active = await projectsWithActiveSessions(store.db)
    // A start takes as long as its image takes to build; its sessions fail with it.
    const unsupervised = new Set(active.filter((id) => !relay.supervisor(id) && !containers.isStarting(id)))
    for (const project_id of since.keys()) if (!unsupervised.has(project_id)) since.delete(project_id)
    for (const project_id of unsupervised) {
      const first = since.get(project_id) ?? Date.now()
      since.set(project_id, first)
      if (Date.now() - first < patienceMs) continue
      const status = (await containers.inspect(project_id))?.status
      if (status === 'paused') {
        since.delete(project_id)
        continue
      }
      const running = status === 'running'
      log.warn('failing sessions without a supervisor', { project_id, running })
      await ends.failAll(
        project_id,
        running ? 'the supervisor of the container does not answer' : 'the container is not running',
      )
      since.delete(project_id)
    }
  }
}
