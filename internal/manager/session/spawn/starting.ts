// Starts the droid of an existing session again: a message resumes a session that is over or hibernated, or a prompt finds
// its droid gone. Each is a `start` command with the turn in it, and each is queued while the container lacks memory.
import type { SessionKeys } from '../../../auth/session-keys.ts'
import { unknown } from '../../../fault.ts'
import type { Db } from '../../../store/open.ts'
import { projectById } from '../../../store/rows/projects.ts'
import { type Due, deleteCommand, insertCommand } from '../../../store/rows/session/commands.ts'
import type { NewEvent } from '../../../store/rows/session/events.ts'
import type { SessionChange, SessionRow } from '../../../store/rows/session/sessions.ts'
import type { Admission, Place } from '../../memory/admission.ts'
import { type SessionChanging, status, type Write } from '../change.ts'
import type { RequestDispatch } from '../dispatch.ts'

type Deps = {
  admission: Pick<Admission, 'place'>
  keys: SessionKeys
  change: SessionChanging
  requestDispatch: RequestDispatch
}
type Starting = {
  trx: Db
  row: SessionRow
  write: Write
  turn: Record<string, unknown>
  messages: NewEvent[]
}

const placed = ({ status: name, ...more }: Place, reason?: string): NewEvent =>
  status(name, { ...(reason ? { reason } : {}), ...more })

const queuedAt = (place: Place): SessionChange => ({
  queued_at: place.status === 'queued' ? new Date().toISOString() : null,
})

export function createStarting({ admission, keys, change, requestDispatch }: Deps) {
  async function placeOf(trx: Db, { project_id, droid }: SessionRow): Promise<Place> {
    const project = await projectById(trx, project_id)
    if (!project) throw unknown('project', project_id)
    return await admission.place(trx, project, droid)
  }

  const rekeyed = (row: SessionRow): SessionChange => ({
    key_generation: row.key_generation + 1,
    key_hash: keys.hashOf(keys.keyOf(row.id, row.key_generation + 1)),
    full_at: null,
  })

  const command = async ({ trx, row, turn }: Starting): Promise<void> =>
    void (await insertCommand(trx, {
      session_id: row.id,
      project_id: row.project_id,
      kind: 'start',
      payload: { turn, resume: true },
    }))

  /** With a new key: the key of the previous droid becomes invalid. */
  async function startAgain(it: Starting, reason: string): Promise<void> {
    const place = await placeOf(it.trx, it.row)
    await it.write([placed(place, reason), ...it.messages], { ...rekeyed(it.row), ...queuedAt(place) })
    await command(it)
  }

  /** Continues the same run with the same key. If the container runs and has memory, callers only see the turn start. */
  async function resumeHibernated(it: Starting): Promise<void> {
    const place = await placeOf(it.trx, it.row)
    const waits = place.status === 'starting' ? [] : [placed(place)]
    await it.write([...waits, ...it.messages], { hibernated: false, idle_at: null, ...queuedAt(place) })
    await command(it)
  }

  /** A prompt found its droid gone: the same turn, with a start before it. */
  async function restart(due: Due): Promise<void> {
    await change(due.session_id, async (trx, row, write) => {
      // A cancellation deleted it.
      if (!(await deleteCommand(trx, due.id))) return
      if (row.end_requested_at || row.full_at) return
      const it = { trx, row, write, turn: due.payload, messages: [] }
      if (row.hibernated) await resumeHibernated(it)
      else await startAgain(it, 'the droid process had ended')
    })
    requestDispatch(due.project_id)
  }

  return { startAgain, resumeHibernated, restart }
}
