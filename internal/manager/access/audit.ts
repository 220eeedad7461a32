// The audit log. The intent of a change is committed before the change is made, and the change is refused if that fails, so
// every change has a row; the same row is settled with the outcome afterwards. Rows of reads and of refused calls are written
// after the response. Outcomes are collected briefly and committed together; while the database is unavailable they wait in
// memory. Rows that a process leaves pending are settled as `unknown` by the next process.
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, messageOf } from '../../fault.ts'
import { createBatch } from '../../lib/batch.ts'
import type { Log } from '../../log.ts'
import { isOutage } from '../../store/errors.ts'
import type { Db } from '../../store/open.ts'
import {
  type AuditRow,
  deleteAuditBefore,
  insertIntents,
  pending,
  settleAbandoned,
  writeOutcomes,
} from '../../store/rows/audit.ts'

const gatherMs = 100
const mostAtOnce = 500
/** Rows of reads and refusals that wait while the database is unavailable; further rows are lost. */
const mostWaiting = 20_000
/** Waiting intents; further changes are refused. */
const mostIntents = 20_000
const longestPauseMs = 5_000

/** Of a call that has not ended yet. */
export type AuditCall = Omit<AuditRow, 'boot' | 'seq' | 'outcome' | 'milliseconds'>
type Ended = AuditCall & { outcome: string; milliseconds: number }

export type Intent = {
  /** Rejects with `unavailable`; the change must then not be made. */
  committed: Promise<void>
  /** Call it at most once; it does not wait. */
  settle(outcome: string, milliseconds: number): void
}

export type Audit = {
  /** A read, or a call that ended before it could change anything. */
  record(row: Ended): void
  begin(call: AuditCall): Intent
  /** Settles rows that earlier server processes left pending. */
  settleAbandoned(): Promise<void>
  expire(days: number): Promise<void>
  /** Rows that are not written yet. */
  waiting(): number
  close(): Promise<void>
}

const refusal = (cause: unknown): Fault =>
  new Fault(
    'unavailable',
    `the change was not made: its audit record cannot be written (${messageOf(cause)})`,
    { hint: 'try again when the database is available', cause, retry_after_seconds: 5 },
  )

export function createAudit(db: Db, log: Log): Audit {
  const boot = randomBytes(9).toString('base64url')
  let seq = 0
  const closing = new AbortController()
  const placed = (row: Ended): AuditRow => ({ ...row, boot, seq: ++seq })

  const intents = createBatch<AuditRow, void>({
    most: mostAtOnce,
    splits: (error) => !isOutage(error),
    commit: async (rows) => {
      await insertIntents(db, rows)
      return rows.map(() => undefined)
    },
  })

  async function commitIntent(row: AuditRow): Promise<void> {
    if (intents.waiting >= mostIntents) throw refusal(new Fault('exhausted', 'the database does not keep up'))
    try {
      await intents.add(row)
    } catch (error) {
      throw refusal(error)
    }
  }

  let outcomes: AuditRow[] = []
  let lost = 0
  let settling: Promise<void> | undefined
  let endGathering: (() => void) | undefined

  async function gather(): Promise<void> {
    if (closing.signal.aborted || outcomes.length >= mostAtOnce) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, gatherMs)
    endGathering = resolve
    await promise
    clearTimeout(timer)
    endGathering = undefined
  }

  /** Whether the rows are written or lost; false if they must be retried. */
  async function commit(batch: AuditRow[]): Promise<boolean> {
    try {
      await writeOutcomes(db, batch)
      return true
    } catch (error) {
      if (isOutage(error)) {
        log.warn('failed to write audit rows, retrying', { rows: batch.length, reason: messageOf(error) })
        return false
      }
      if (batch.length === 1)
        log.error('failed to write an audit row, which is lost', {
          request_id: batch[0]!.request_id,
          error,
        })
      else for (const one of batch) if (!(await commit([one]))) return false
      return true
    }
  }

  async function drainOutcomes(): Promise<void> {
    for (let pause = gatherMs; outcomes.length > 0; ) {
      await gather()
      const batch = outcomes.slice(0, mostAtOnce)
      if (await commit(batch)) {
        outcomes = outcomes.slice(batch.length)
        pause = gatherMs
        reportLost()
        continue
      }
      if (closing.signal.aborted) {
        log.error(
          'failed to write audit rows before the server stopped; their changes will be settled as unknown',
          {
            rows: outcomes.length,
          },
        )
        break
      }
      await sleep(pause, undefined, { signal: closing.signal }).catch(() => undefined)
      pause = Math.min(pause * 2, longestPauseMs)
    }
    settling = undefined
  }

  function reportLost(): void {
    if (lost > 0) log.error('failed to write audit rows of reads and refused calls', { rows: lost })
    lost = 0
  }

  /** `kept`: the outcome of a change, which this process never drops; there are at most as many as calls. */
  function add(row: AuditRow, kept: boolean): void {
    if (!kept && outcomes.length >= mostWaiting) {
      lost += 1
      return
    }
    outcomes.push(row)
    if (outcomes.length >= mostAtOnce) endGathering?.()
    settling ??= drainOutcomes()
  }

  return {
    record: (row) => add(placed(row), false),
    begin(call) {
      const row = placed({ ...call, outcome: pending, milliseconds: 0 })
      const committed = commitIntent(row)
      return {
        committed,
        settle(outcome, milliseconds) {
          const settled = { ...row, outcome, milliseconds }
          // A rejected intent may be written nevertheless; the change was not made.
          committed.then(
            () => add(settled, true),
            () => add(settled, false),
          )
        },
      }
    },
    async settleAbandoned() {
      const rows = await settleAbandoned(db, boot)
      if (rows > 0) log.warn('changes of an earlier server process have an unknown outcome', { rows })
    },
    waiting: () => outcomes.length + intents.waiting,
    expire: async (days) => await deleteAuditBefore(db, new Date(Date.now() - days * 86_400_000)),
    async close() {
      await intents.settled()
      closing.abort()
      endGathering?.()
      await settling
    },
  }
}
