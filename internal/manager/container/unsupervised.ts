// The last way out for sessions: those whose container has no supervisor and will not get one are told so, instead of
// being `running` for ever.
import type { Log } from '../../log.ts'
import type { Relay } from '../../relay/relay.ts'
import type { Store } from '../../store/open.ts'
import { projectsWithActiveSessions } from '../../store/rows/session/sessions.ts'
import type { SessionEnds } from '../session/ends.ts'
import type { Containers } from './containers.ts'

const patience_ms = 60_000

type Deps = {
  store: Store
  relay: Relay
  containers: Containers
  ends: Pick<SessionEnds, 'failAll'>
  log: Log
}

export function createUnsupervised({ store, relay, containers, ends, log }: Deps) {
  /** Since when each project is seen without its supervisor. */
  const since = new Map<string, number>()

  return async function sweep(): Promise<void> {
    const active = await projectsWithActiveSessions(store.db)
    const alone = new Set(active.filter((id) => !relay.supervisor(id)))
    for (const project_id of since.keys()) if (!alone.has(project_id)) since.delete(project_id)
    for (const project_id of alone) {
      const first = since.get(project_id) ?? Date.now()
      since.set(project_id, first)
      if (Date.now() - first < patience_ms) continue
      const status = (await containers.inspect(project_id))?.status
      if (status === 'paused') {
        since.delete(project_id)
        continue
      }
      const running = status === 'running'
      log.warn('sessions without a supervisor are given up', { project_id, running })
      await ends.failAll(
        project_id,
        running ? 'the supervisor of the container does not answer' : 'the container is not running',
      )
      since.delete(project_id)
    }
  }
}
