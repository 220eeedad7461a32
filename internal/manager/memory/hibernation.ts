// Hibernation: stops the process of an agent that has been idle for long; the next message starts it again with its
// conversation. The session stays `idle`. A command asks the supervisor to stop the process; then the row becomes `hibernated`.
// A message that arrives in between finds the agent gone and starts it again.
import type { Config } from '../../config/load.ts'
import { messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import { type Due, deleteCommand, insertCommand, pendingTurns } from '../../store/rows/session/commands.ts'
import { hibernatable } from '../../store/rows/session/memory.ts'
import { type SessionChanging, status } from '../session/change.ts'
import type { RequestDispatch } from '../session/dispatch.ts'

type Deps = {
  store: Store
  config: Config
  log: Log
  change: SessionChanging
  requestDispatch: RequestDispatch
}

export function createHibernation({ store, config, log, change, requestDispatch }: Deps) {
  return {
    /** The supervisor has stopped the process. */
    async done(command: Due): Promise<void> {
      await change(command.session_id, async (trx, row, write) => {
        await deleteCommand(trx, command.id)
        if (row.status !== 'idle' || row.hibernated) return
        // `idle_at` stays: `session_idle_minutes` counts from then.
        await write([status('idle', { hibernated: true })], { hibernated: true, idle_at: row.idle_at })
      })
    },
    async sweep(): Promise<void> {
      if (config.hibernate_minutes === 0) return
      const before = new Date(Date.now() - config.hibernate_minutes * 60_000)
      const projects = new Set<string>()
      for (const { id, project_id } of await hibernatable(store.db, before))
        try {
          const requested = await change(id, async (trx, row) => {
            const since = row.idle_at === null ? undefined : Date.parse(row.idle_at)
            if (row.status !== 'idle' || row.hibernated || row.end_requested_at) return false
            if (since === undefined || since >= before.getTime()) return false
            if ((await pendingTurns(trx, id)).length > 0) return false
            await insertCommand(trx, { session_id: id, project_id, kind: 'hibernate', payload: {} })
            return true
          })
          if (requested) projects.add(project_id)
        } catch (error) {
          log.warn('failed to hibernate a session', { session_id: id, reason: messageOf(error) })
        }
      for (const project_id of projects) requestDispatch(project_id)
    },
  }
}
