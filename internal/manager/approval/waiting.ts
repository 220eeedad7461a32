// Calls that wait for the decision on an open approval. Memory only holds who waits; what they wait for is a row, which is read
// when the wait begins, when its session ends or becomes idle, and every few seconds, in case another server decided it.
import type { Log } from '../../log.ts'
import { isFinal } from '../../protocol/session-status.ts'
import type { Db } from '../../store/open.ts'
import { type ApprovalRow, approvalsById } from '../../store/rows/approvals.ts'
import type { Committed } from '../events/log-writer.ts'
import type { Asking } from './approval.ts'

const pollMs = 5_000
/** Of a timer; a later deadline is found by the sweep. */
const longestTimerMs = 2 ** 31 - 1

type Entry = { session_id: string | null; waiters: Set<(row: ApprovalRow) => void> }

export function createWaiting(deps: {
  db: Db
  log: Log
  /** Closes a row whose deadline has passed. */
  expire: (row: ApprovalRow) => Promise<void>
  /** Closes a row that its last waiter cancelled. */
  cancel: (row: ApprovalRow) => Promise<void>
}) {
  const { db, log } = deps
  const entries = new Map<string, Entry>()
  const bySession = new Map<string, Set<string>>()

  function tell(row: ApprovalRow): void {
    for (const waiter of entries.get(row.id)?.waiters ?? []) waiter(row)
  }

  async function look(ids: string[]): Promise<void> {
    for (const row of await approvalsById(db, ids)) if (row.status !== 'open') tell(row)
  }
  const lookLater = (ids: string[]): void => {
    look(ids).catch((error: unknown) => log.warn('failed to read approvals', { open: ids.length, error }))
  }
  const polling = setInterval(() => lookLater([...entries.keys()]), pollMs).unref()

  function enter({ id, session_id }: ApprovalRow, waiter: (row: ApprovalRow) => void): () => boolean {
    const entry = entries.get(id) ?? { session_id, waiters: new Set() }
    entries.set(id, entry)
    entry.waiters.add(waiter)
    if (session_id !== null)
      bySession.set(session_id, (bySession.get(session_id) ?? new Set<string>()).add(id))
    /** True if it was the last one. */
    return () => {
      entry.waiters.delete(waiter)
      if (entry.waiters.size > 0 || entries.get(id) !== entry) return false
      entries.delete(id)
      const ofSession = session_id === null ? undefined : bySession.get(session_id)
      ofSession?.delete(id)
      if (session_id !== null && ofSession?.size === 0) bySession.delete(session_id)
      return true
    }
  }

  /** The closed row. Throws the reason of the signal. */
  async function wait(row: ApprovalRow, { signal, cancelled }: Asking): Promise<ApprovalRow> {
    if (row.status !== 'open') return row
    const { promise, resolve, reject } = Promise.withResolvers<ApprovalRow>()
    const leave = enter(row, resolve)
    const onAbort = () => reject(signal.reason)
    const fail = (what: string) => (error: unknown) =>
      log.warn(`failed to ${what} an approval`, { approval_id: row.id, error })
    const due = row.expires_at === null ? longestTimerMs : Date.parse(row.expires_at) - Date.now()
    const timer = setTimeout(
      () => void deps.expire(row).catch(fail('expire')),
      Math.min(Math.max(0, due) + 1, longestTimerMs),
    )
    try {
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
      // It may have been closed between the read of the row and the start of the wait.
      lookLater([row.id])
      return await promise
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
      const last = leave()
      // A lost connection leaves the question open: the droid's client repeats the call.
      if (last && signal.aborted && cancelled(signal.reason)) void deps.cancel(row).catch(fail('cancel'))
    }
  }

  return {
    wait,
    tell,
    isWaiting: (id: string): boolean => entries.has(id),
    /** The statement that ended a session or its turn has cancelled its questions. */
    onCommit({ rows }: Committed): void {
      if (bySession.size === 0) return
      for (const { id, status } of rows) {
        const ids = isFinal(status) || status === 'idle' ? bySession.get(id) : undefined
        if (ids) lookLater([...ids])
      }
    },
    stop: () => clearInterval(polling),
  }
}
