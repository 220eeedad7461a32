// How sessions end: on request together with their descendants, with their container, or after being idle for too long; and
// how turns are cancelled. The droid is ended in the container; here the end is requested and recorded.
import type { Config } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import { type FinalStatus, isBeforeStart, isFinal } from '../../protocol/session-status.ts'
import type { Db, Store } from '../../store/open.ts'
import {
  deleteSessionCommands,
  hasCommand,
  insertCommand,
  pendingTurns,
} from '../../store/rows/session/commands.ts'
import * as rows from '../../store/rows/session/sessions.ts'
import { type SessionChanging, status, type Write } from './change.ts'
import type { RequestDispatch } from './dispatch.ts'

type Deps = {
  store: Store
  config: Config
  change: SessionChanging
  requestDispatch: RequestDispatch
}
type How = { status?: 'completed' | 'cancelled'; reason?: string; keep?: boolean }

export function createSessionEnds(deps: Deps) {
  const { config, change } = deps
  const { db } = deps.store

  /** The server itself sets a final status. Does nothing if the session has one. */
  async function over(session_id: string, name: FinalStatus, reason: string | null): Promise<void> {
    await change(session_id, (trx, row, write) => overIn(trx, row, write, name, reason))
  }

  async function overIn(
    trx: Db,
    row: rows.SessionRow,
    write: Write,
    name: FinalStatus,
    reason: string | null,
  ): Promise<void> {
    await deleteSessionCommands(trx, row.id)
    if (isFinal(row.status)) return
    await write([status(name, reason ? { reason } : {})])
  }

  /**
   * Requests the end of a session and its descendants. Parents before children, repeated for sessions that were spawned
   * meanwhile: a session whose end is requested cannot spawn.
   */
  async function end(session_id: string, how: How = {}): Promise<string[]> {
    const asked = new Set<string>()
    for (;;) {
      const left = (await rows.subtree(db, session_id)).filter(({ id }) => !asked.has(id))
      if (left.length === 0) return [...asked]
      const projects = new Set<string>()
      for (const { id, project_id } of left) {
        if (await requestEnd(id, how)) projects.add(project_id)
        asked.add(id)
      }
      for (const project_id of projects) deps.requestDispatch(project_id)
    }
  }

  async function requestEnd(id: string, how: How): Promise<boolean> {
    return await change(id, async (trx, row, write) => {
      const first = row.end_requested_at === null
      if (first && !how.keep) await write([], { end_requested_at: new Date().toISOString() })
      if (isFinal(row.status) || (await hasCommand(trx, id, 'end'))) return false
      // It has no process in the container to end.
      if (row.hibernated || isBeforeStart(row.status)) {
        await overIn(trx, row, write, how.status ?? 'completed', how.reason ?? 'ended')
        // The start of its container may not be needed any more.
        return row.status === 'preparing'
      }
      await insertCommand(trx, {
        session_id: id,
        project_id: row.project_id,
        kind: 'end',
        payload: { status: how.status ?? 'completed', reason: how.reason ?? 'ended' },
      })
      return true
    })
  }

  async function cancel(session_id: string): Promise<void> {
    const project_id = await change(session_id, async (trx, row, write) => {
      if (isFinal(row.status)) throw new Fault('conflict', `session ${session_id} is over (${row.status})`)
      if (row.hibernated) return row.project_id
      if (isBeforeStart(row.status)) {
        await cancelBeforeStart(trx, row, write)
        return row.project_id
      }
      await insertCommand(trx, { session_id, project_id: row.project_id, kind: 'cancel', payload: {} })
      return row.project_id
    })
    deps.requestDispatch(project_id)
  }

  /** None of its turns has started. The session stays without a droid until the next message. */
  async function cancelBeforeStart(trx: Db, row: rows.SessionRow, write: Write): Promise<void> {
    const at = new Date().toISOString()
    const turns = await pendingTurns(trx, row.id)
    await deleteSessionCommands(trx, row.id)
    await write(
      [
        ...turns.map((turn_id) => ({
          type: 'completion',
          at,
          data: { turn_id, final_text: '', stop_reason: 'cancelled' },
        })),
        status('idle', { hibernated: true }),
      ],
      { hibernated: true, queued_at: null },
    )
  }

  async function endIdle(): Promise<void> {
    const before = new Date(Date.now() - config.session_idle_minutes * 60_000)
    for (const { id } of await rows.idleSince(db, before))
      await end(id, { reason: 'idle for too long', keep: true })
  }

  /** The container will not come back, or was stopped on request. Hibernated sessions have no process in it. */
  async function failAll(project_id: string, reason: string) {
    for (const { id } of await rows.activeSessions(db, project_id))
      await change(id, async (trx, row, write) => {
        if (!row.hibernated) await overIn(trx, row, write, 'failed', reason)
      })
  }

  return { over, end, cancel, endIdle, failAll }
}
export type SessionEnds = ReturnType<typeof createSessionEnds>
