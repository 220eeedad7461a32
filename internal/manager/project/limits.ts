// The limits that hold, and how much of them is used.
import type { Config } from '../../config/load.ts'
import { unknown } from '../../fault.ts'
import type { Store } from '../../store/open.ts'
import { projectUsage, treeUsage } from '../../store/rows/session/sessions.ts'
import type { Sessions } from '../session/sessions.ts'
import { changeableBy } from './boundaries.ts'
import { effectiveLimits, type Projects } from './projects.ts'

export function createLimits(deps: { store: Store; config: Config; projects: Projects; sessions: Sessions }) {
  const { db } = deps.store
  return async (project_id: string, session_id?: string) => {
    const limits = effectiveLimits(deps.config, await deps.projects.require(project_id))
    const { sessions, active, spawned_last_minute, ...tokens } = await projectUsage(db, project_id)
    const used = { sessions, active_sessions: active, spawns_last_minute: spawned_last_minute, ...tokens }
    const changeable = changeableBy()
    if (!session_id) return { project_id, limits, used, changeable, session: null }
    const row = await deps.sessions.require(session_id)
    if (row.project_id !== project_id) throw unknown('session', session_id)
    const tree = await treeUsage(db, row.root_session_id)
    return {
      project_id,
      limits,
      used,
      changeable,
      session: { session_id, depth: row.depth, root_session_id: row.root_session_id, tree },
    }
  }
}
