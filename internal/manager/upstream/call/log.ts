// The rows of calls: committed before a request leaves, and ended when its outcome is known. Rows of concurrent calls are
// committed together. The end of a call is written behind its answer: if the server crashes in between, the outcome is unknown
// to it, which is what a repeat is told.
import { randomBytes } from 'node:crypto'
import { messageOf } from '../../../fault.ts'
import { createBatch } from '../../../lib/batch.ts'
import type { Log } from '../../../log.ts'
import { isOutage } from '../../../store/errors.ts'
import type { Db, Store } from '../../../store/open.ts'
import {
  abandonCalls,
  type CallEnd,
  cancelCallsOf,
  endCalls,
  expireCalls,
  type NewUpstreamCall,
  upstreamCallBy,
  writeCalls,
} from '../../../store/rows/upstream/calls.ts'

const hourMs = 3_600_000
const keepResultsMs = 24 * hourMs
const keepRowsMs = 30 * 24 * hourMs

/** JSON that PostgreSQL cannot store: NUL characters and halves of surrogate pairs. */
const isUnstorable = (value: unknown): boolean =>
  /\\u(?:0000|d[89a-f][0-9a-f]{2})/i.test(JSON.stringify(value) ?? '')

export function createCallLog(deps: { store: Store; log: Log }) {
  const { db } = deps.store
  const boot = randomBytes(9).toString('base64url')
  const splits = (error: unknown) => !isOutage(error)
  const begins = createBatch<NewUpstreamCall, void>({
    splits,
    commit: async (rows) => {
      await writeCalls(db, rows)
      return rows.map(() => undefined)
    },
  })
  const ends = createBatch<CallEnd, void>({
    splits,
    commit: async (rows) => {
      await endCalls(db, rows)
      return rows.map(() => undefined)
    },
  })

  return {
    find: (session_id: string, call_id: string) => upstreamCallBy(db, session_id, call_id),
    /** Before the request leaves. `permit` runs in the same transaction, and nothing is sent if it throws. */
    async begin(row: Omit<NewUpstreamCall, 'boot'>, permit?: (trx: Db) => Promise<void>): Promise<void> {
      const placed = { ...row, boot }
      if (!permit) return await begins.add(placed)
      await deps.store.transact(async (trx) => {
        await permit(trx)
        await writeCalls(trx, [placed])
      })
    },
    /** Does not wait. */
    end(call: CallEnd): void {
      const isLost = isUnstorable(call.result)
      ends
        .add(isLost ? { ...call, result: null } : call)
        .catch((error: unknown) =>
          deps.log.warn('failed to record the end of a call', { call: call.id, reason: messageOf(error) }),
        )
    },
    /** A call of this process that is still running. */
    isOurs: ({ boot: of }: { boot: string }) => of === boot,
    /** At the start: calls that earlier processes left without an end. */
    async abandon(): Promise<void> {
      const calls = await abandonCalls(db, boot, { reason: 'the server stopped before the answer arrived' })
      if (calls > 0) deps.log.warn('calls of MCP tools have an unknown outcome', { calls })
    },
    cancelOf: (session_ids: string[]) => cancelCallsOf(db, session_ids),
    expire: () =>
      expireCalls(db, {
        results_before: new Date(Date.now() - keepResultsMs),
        rows_before: new Date(Date.now() - keepRowsMs),
      }),
    async close(): Promise<void> {
      await begins.settled()
      await ends.settled()
    },
  }
}
export type CallLog = ReturnType<typeof createCallLog>
