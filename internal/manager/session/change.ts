// Changes one session: locks its row in a transaction that may write events, and notifies subscribers after the commit.
import { unknown } from '../../fault.ts'
import type { SessionStatus } from '../../protocol/session-status.ts'
import type { Db, Store } from '../../store/open.ts'
import { logLock, type NewEvent, type PlacedEvent } from '../../store/rows/session/events.ts'
import * as rows from '../../store/rows/session/sessions.ts'
import type { EventLog } from '../events/event-log.ts'
import { writeEvents } from '../events/log-writer.ts'

export const status = (name: SessionStatus, more: Record<string, unknown> = {}): NewEvent => ({
  type: 'status',
  at: new Date().toISOString(),
  data: { status: name, ...more },
})

export type Write = (events: NewEvent[], also?: rows.SessionChange) => Promise<void>

export function createSessionChange({ store, events }: { store: Store; events: EventLog }) {
  return async function change<T>(
    session_id: string,
    work: (trx: Db, row: rows.LockedSession, write: Write) => Promise<T>,
  ): Promise<T> {
    const changing = store.transact(
      async (trx) => {
        const written: PlacedEvent[] = []
        let row = (await rows.lockSessions(trx, [session_id])).get(session_id)
        if (!row) throw unknown('session', session_id)
        const write = async (added: NewEvent[], also: rows.SessionChange = {}) => {
          const { change, events } = await writeEvents(trx, row!, added)
          const changed = { ...change, ...also }
          written.push(...events)
          await rows.updateSession(trx, session_id, changed)
          row = { ...row!, ...changed } as rows.LockedSession
        }
        return { result: await work(trx, row, write), row, written }
      },
      { lock: logLock },
    )
    changing.catch(() => events.doubt([session_id]))
    const { result, row, written } = await changing
    events.announce({ rows: [row], events: written })
    return result
  }
}
export type SessionChanging = ReturnType<typeof createSessionChange>
