// The storage limit of a session: `limits.session_mb` of events. The log writer enforces it in the transaction that writes;
// other writes (caller tools, messages, usage) are checked after each commit. A session that reaches the limit fails, its
// droid is stopped, and its further events are dropped.
import type { Config } from '../../config/load.ts'
import { Fault } from '../../fault.ts'
import type { Log } from '../../log.ts'
import { isFinal } from '../../protocol/session-status.ts'
import type { Store } from '../../store/open.ts'
import { projectById } from '../../store/rows/projects.ts'
import { deleteSessionCommands } from '../../store/rows/session/commands.ts'
import type { NewEvent } from '../../store/rows/session/events.ts'
import type { LockedSession, SessionRow } from '../../store/rows/session/sessions.ts'
import type { SessionChanging } from '../session/change.ts'
import type { Committed } from './log-writer.ts'

const mebibyte = 1024 * 1024
/** Approximate size of the row of an event and its entries in three indexes. */
const eventOverhead = 100
const warnAt = 0.8

export const storedSize = (json: string): number => Buffer.byteLength(json) + eventOverhead

export const limitBytes = (fallback_mb: number, { session_mb }: Pick<LockedSession, 'session_mb'>): number =>
  (session_mb ?? fallback_mb) * mebibyte

const limitText = (limit: number) =>
  `${(limit / mebibyte).toLocaleString('en-US')} MiB of events, the limit of a session (limits.session_mb)`

export const fullReason = (limit: number): string => `stored ${limitText(limit)}`

/** A session that was full continues only well below the limit, that is, after the limit was raised. */
export const hasRoom = (row: LockedSession, more: number, limit: number): boolean =>
  row.stored_bytes + more <= (row.full_at === null ? limit : limit * warnAt)

export const full = (session_id: string, limit: number): Fault =>
  new Fault('exhausted', `session ${session_id} stored ${limitText(limit)}`, {
    hint: 'spawn a new session with new_session, or raise limits.session_mb',
  })

/** One warning, when the session passes `warnAt` of its limit. */
export function nearlyFull(before: number, after: number, limit: number): NewEvent[] {
  if (before >= limit * warnAt || after < limit * warnAt) return []
  const message = `this session stored ${Math.floor((100 * after) / limit)}% of ${limitText(limit)}; it fails at the limit`
  return [{ type: 'warning', at: new Date().toISOString(), data: { message } }]
}

/** The last events of a session that reached its limit. */
export function fullEvents(row: Pick<SessionRow, 'status'>, limit: number): NewEvent[] {
  const at = new Date().toISOString()
  const reason = fullReason(limit)
  const dropped = {
    type: 'error',
    at,
    data: { kind: 'exhausted', message: `${reason}; later events are dropped` },
  }
  return isFinal(row.status)
    ? [dropped]
    : [dropped, { type: 'status', at, data: { status: 'failed', reason } }]
}

type Deps = {
  store: Store
  config: Config
  log: Log
  change: () => SessionChanging
  /** Stops the droid of the session in its container. */
  forget: (project_id: string, session_ids: string[]) => void
}

const remember_ms = 5_000

/** To be called after every commit. */
export function createStorageGuard({ store, config, log, change, forget }: Deps) {
  const known = new Map<string, { session_mb: number | null; until: number }>()
  const filling = new Set<string>()

  async function overrideOf(project_id: string): Promise<number | null> {
    const before = known.get(project_id)
    if (before && before.until > Date.now()) return before.session_mb
    const session_mb = (await projectById(store.db, project_id))?.limits.session_mb ?? null
    if (known.size > 10_000) known.clear()
    known.set(project_id, { session_mb, until: Date.now() + remember_ms })
    return session_mb
  }

  async function look({ id, project_id, stored_bytes }: Committed['rows'][number]): Promise<void> {
    const limit = limitBytes(config.limits.session_mb, { session_mb: await overrideOf(project_id) })
    if (stored_bytes <= limit) return
    await change()(id, async (trx, row, write) => {
      if (isFinal(row.status)) return
      await deleteSessionCommands(trx, id)
      await write(fullEvents(row, limit), { full_at: new Date().toISOString() })
    })
    forget(project_id, [id])
  }

  return ({ rows }: Committed): void => {
    for (const row of rows) {
      // The smallest possible limit.
      if (row.stored_bytes < mebibyte || isFinal(row.status) || filling.has(row.id)) continue
      filling.add(row.id)
      look(row)
        .catch((error: unknown) =>
          log.warn('failed to end a session that reached its storage limit', { session_id: row.id, error }),
        )
        .finally(() => filling.delete(row.id))
    }
  }
}
