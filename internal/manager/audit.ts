// The audit log. Rows are committed together. Whoever made a change waits for his, so it goes at once, with whatever has
// gathered; nobody waits for the row of a read, so those gather for a moment, which is what a crash can lose of them.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../log.ts'
import { type AuditRow, deleteAuditBefore, insertAudit } from '../store/audit.ts'
import type { Db } from '../store/open.ts'

const gatherMs = 100
const mostAtOnce = 500
const mostWaiting = 20_000
const tries = 3

export type Audit = {
  /** Resolves when the row is committed, or was given up after an error in the log. Never rejects. */
  record(row: AuditRow, soon?: boolean): Promise<void>
  expire(days: number): Promise<void>
  close(): Promise<void>
}

export function createAudit(db: Db, log: Log): Audit {
  let rows: AuditRow[] = []
  let waiting: PromiseWithResolvers<void> | undefined
  let running: Promise<void> | undefined
  let hurried = false
  let endGathering: (() => void) | undefined

  function hurry() {
    hurried = true
    endGathering?.()
  }

  async function gather(): Promise<void> {
    if (hurried || rows.length >= mostAtOnce) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, gatherMs)
    endGathering = resolve
    await promise
    clearTimeout(timer)
    endGathering = undefined
  }

  async function commit(batch: AuditRow[]): Promise<void> {
    for (let attempt = 1; ; attempt++)
      try {
        return await insertAudit(db, batch)
      } catch (error) {
        if (attempt === tries) return log.error('audit rows are lost', { rows: batch.length, error })
        await sleep(attempt * 100)
      }
  }

  async function drain(): Promise<void> {
    while (rows.length > 0) {
      await gather()
      hurried = false
      const batch = rows
      const done = waiting
      rows = []
      waiting = undefined
      await commit(batch)
      done?.resolve()
    }
    running = undefined
  }

  return {
    record(row, soon = false) {
      if (rows.length >= mostWaiting) {
        log.error('audit row is lost: the database does not keep up', {
          tool: row.tool,
          action: row.action,
          request_id: row.request_id,
        })
        return Promise.resolve()
      }
      rows.push(row)
      waiting ??= Promise.withResolvers<void>()
      const { promise } = waiting
      if (soon || rows.length >= mostAtOnce) hurry()
      running ??= drain()
      return promise
    },
    expire: async (days) => await deleteAuditBefore(db, new Date(Date.now() - days * 86_400_000)),
    async close() {
      hurry()
      await running
    },
  }
}
