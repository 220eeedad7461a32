// Writes requests for caller tools: those that droids make and those that are closed. Requests that arrive during a commit
// are committed together, and nothing is announced before its commit.
import { createBatch } from '../../lib/batch.ts'
import { isOutage } from '../../store/errors.ts'
import type { Store } from '../../store/open.ts'
import { type Close, type NewRequest, writeCalls } from '../../store/rows/callers.ts'
import type { Committed } from './log-writer.ts'

type Job = { session_id: string; id: string } & (
  | { kind: 'ask'; ask: NewRequest }
  | { kind: 'close'; close: Close }
)

const most = 2_000

export function createCallWriter(deps: {
  store: Store
  onCommit: (committed: Committed) => void
  /** It is unknown whether a write to these sessions was committed. */
  onDoubt: (session_ids: string[]) => void
}) {
  async function commit(jobs: Job[]): Promise<boolean[]> {
    // If two jobs of one batch close the same request, the first one closes it.
    const closes = new Map<string, Job & { kind: 'close' }>()
    for (const job of jobs) if (job.kind === 'close' && !closes.has(job.id)) closes.set(job.id, job)
    const asks = jobs.flatMap((job) => (job.kind === 'ask' ? [job.ask] : []))
    try {
      const committed = await writeCalls(
        deps.store.db,
        asks,
        [...closes.values()].map(({ close, session_id }) => ({ ...close, session_id })),
      )
      const written = new Set(committed.events.map(({ type, data }) => `${type} ${data.request_id}`))
      deps.onCommit(committed)
      return jobs.map((job) =>
        job.kind === 'ask'
          ? written.has(`caller_tool_request ${job.id}`)
          : closes.get(job.id) === job && written.has(`caller_tool_result ${job.id}`),
      )
    } catch (error) {
      // It may be committed nevertheless. A repeat is recognised by its ids.
      deps.onDoubt(jobs.map(({ session_id }) => session_id))
      throw error
    }
  }

  const batch = createBatch({ commit, most, splits: (error) => !isOutage(error) })

  return {
    /** False if this call was made before, or its session has ended. */
    ask: (ask: NewRequest): Promise<boolean> =>
      batch.add({ kind: 'ask', id: ask.id, session_id: ask.session_id, ask }),
    /** False if the request is no longer open. */
    close: (session_id: string, close: Close): Promise<boolean> =>
      batch.add({ kind: 'close', id: close.id, session_id, close }),
    settled: batch.settled,
  }
}
