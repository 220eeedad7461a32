// Sets the grant of a project. Its container then holds keys of the granted scope, so nothing that was started there with less
// scope may remain: a wider grant is refused while sessions are active or schedules are enabled, and takes effect only after the
// container was removed. A narrower grant takes effect at once: keys beyond it are refused, and tokens that they created are
// revoked.
import { isGranted } from '../../auth/grant.ts'
import { covers, parseScope } from '../../auth/scope.ts'
import { Fault, unknown } from '../../fault.ts'
import type { KeyedQueue } from '../../lib/keyed-queue.ts'
import type { Runtime } from '../../runtime/runtime.ts'
import type { Db, Store } from '../../store/open.ts'
import { lockProject, projectById, saveContainer } from '../../store/rows/projects.ts'
import { enabledSchedules } from '../../store/rows/schedule/schedules.ts'
import { logLock } from '../../store/rows/session/events.ts'
import { activeSessions, closeSessions } from '../../store/rows/session/sessions.ts'
import { revokeMinted } from '../../store/rows/tokens.ts'

type Deps = {
  store: Store
  runtime: Runtime
  serial: KeyedQueue
  /** Clears cached tokens and keys on all servers; called before the change is answered. */
  forget: () => Promise<void>
}
/** Writes the change of the row, with the other fields of the same update. */
type Write = (trx: Db) => Promise<void>

const some = (names: string[]) =>
  names.length > 5 ? `${names.slice(0, 5).join(', ')} and ${names.length - 5} more` : names.join(', ')

async function requireUnused(db: Db, project_id: string): Promise<void> {
  const active = (await activeSessions(db, project_id)).map(({ id }) => id)
  if (active.length > 0)
    throw new Fault('conflict', `project ${project_id} has active sessions: ${some(active)}`, {
      hint: 'end them first: with the grant, their container would hold keys that exceed their scope',
    })
  // Any token that may write to the project may have changed their prompts.
  const enabled = (await enabledSchedules(db, project_id)).map(({ id }) => id)
  if (enabled.length > 0)
    throw new Fault('conflict', `project ${project_id} has enabled schedules: ${some(enabled)}`, {
      hint: 'disable or delete them first; review their prompts before you enable them again',
    })
}

export function createGrants({ store, runtime, serial, forget }: Deps) {
  const isNarrower = (before: string | null, after: string | null) =>
    after === null || (before !== null && covers(parseScope(before), parseScope(after)))

  async function narrow(project_id: string, grant: string | null, write: Write): Promise<void> {
    await store.transact(
      async (trx) => {
        const row = await lockProject(trx, project_id)
        if (!row || !isNarrower(row.api_scope_grant, grant))
          throw new Fault('conflict', `project ${project_id} was changed concurrently`, { hint: 'try again' })
        await write(trx)
        const beyond = (await activeSessions(trx, project_id)).filter(
          ({ api_scope }) => api_scope && !isGranted(grant, project_id, parseScope(api_scope)),
        )
        await revokeMinted(
          trx,
          beyond.map(({ id }) => id),
        )
      },
      { lock: logLock },
    )
    await forget()
  }

  /** Removes the container first: a crash in between leaves a stopped container and no grant. */
  async function widen(project_id: string, write: Write): Promise<void> {
    await requireUnused(store.db, project_id)
    await saveContainer(store.db, project_id, { wanted: 'stopped' })
    await runtime.remove(project_id)
    await saveContainer(store.db, project_id, {
      status: 'absent',
      reason: null,
      container_id: null,
      spec_hash: null,
      failures: 0,
    })
    await store.transact(
      async (trx) => {
        await requireUnused(trx, project_id)
        const row = await projectById(trx, project_id)
        if (row?.wanted !== 'stopped')
          throw new Fault('conflict', `the container of project ${project_id} was started concurrently`, {
            hint: 'try again',
          })
        await write(trx)
        // Their conversations contain messages of callers with less scope.
        await closeSessions(trx, project_id)
      },
      { lock: logLock },
    )
    await forget()
  }

  return {
    async change(project_id: string, grant: string | null, write: Write): Promise<void> {
      await serial(project_id, async () => {
        const row = await projectById(store.db, project_id)
        if (!row || row.deleting_at) throw unknown('project', project_id)
        if (grant === null || isNarrower(row.api_scope_grant, grant)) await narrow(project_id, grant, write)
        else await widen(project_id, write)
      })
    },
  }
}
