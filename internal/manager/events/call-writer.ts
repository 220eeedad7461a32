// Writes the calls of callers' tools: asked and closed. Like the writer of the log, it commits together whatever came in
// while the last commit was under way, and tells nobody anything before the commit.

import { isOutage } from '../../store/errors.ts'
import type { Store } from '../../store/open.ts'
import { type Close, type NewRequest, writeCalls } from '../../store/rows/callers.ts'
import type { Committed } from './log-writer.ts'

type Job = { session_id: string; id: string; done: PromiseWithResolvers<boolean> } & (
  | { kind: 'ask'; ask: NewRequest }
  | { kind: 'close'; close: Close }
)

const most = 2_000

export function createCallWriter(deps: {
  store: Store
  onCommit: (committed: Committed) => void
  /** It is not known whether something of these sessions was committed. */
  onDoubt: (session_ids: string[]) => void
}) {
  let queue: Job[] = []
  let running: Promise<void> | undefined

  async function write(jobs: Job[]): Promise<void> {
    // Two who close the same one in the same breath: the first has it.
    const closes = new Map<string, Job & { kind: 'close' }>()
    for (const job of jobs) if (job.kind === 'close' && !closes.has(job.id)) closes.set(job.id, job)
    const asks = jobs.flatMap((job) => (job.kind === 'ask' ? [job.ask] : []))
    try {
      const committed = await writeCalls(
        deps.store.db,
        asks,
        [...closes.values()].map(({ close, session_id }) => ({ ...close, session_id })),
      )
      const took = new Set(committed.events.map(({ type, data }) => `${type} ${data.request_id}`))
      deps.onCommit(committed)
      for (const job of jobs)
        job.done.resolve(
          job.kind === 'ask'
            ? took.has(`caller_tool_request ${job.id}`)
            : closes.get(job.id) === job && took.has(`caller_tool_result ${job.id}`),
        )
    } catch (error) {
      // It may be committed nevertheless; a repeat is known by its ids.
      deps.onDoubt(jobs.map(({ session_id }) => session_id))
      // What the database refuses of one call must not be held against the others.
      if (jobs.length > 1 && !isOutage(error)) for (const job of jobs) await write([job])
      else for (const job of jobs) job.done.reject(error)
    }
  }

  async function drain(): Promise<void> {
    while (queue.length > 0) {
      const jobs = queue.slice(0, most)
      queue = queue.slice(jobs.length)
      await write(jobs)
    }
    running = undefined
  }

  function push(job: Job): Promise<boolean> {
    queue.push(job)
    running ??= drain()
    return job.done.promise
  }

  return {
    /** False if this call was asked before, or its session is over. */
    ask: (ask: NewRequest): Promise<boolean> =>
      push({ kind: 'ask', id: ask.id, session_id: ask.session_id, ask, done: Promise.withResolvers() }),
    /** False if the request was not open any more. */
    close: (session_id: string, close: Close): Promise<boolean> =>
      push({ kind: 'close', id: close.id, session_id, close, done: Promise.withResolvers() }),
    settled: async () => await running,
  }
}
