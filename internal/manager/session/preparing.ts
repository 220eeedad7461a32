// Tells sessions that wait for their container what is done for it, as durable `preparing` events. Each event is stored once for
// every waiting session, so they are limited: only changes, about one per second, fewer if many sessions wait, and a fixed
// number per start.
import { Fault, messageOf } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import { preparingSessions } from '../../store/rows/session/sessions.ts'
import type { SessionSteps, Step } from '../container/starts.ts'
import { type SessionChanging, status } from './change.ts'

const intervalMs = 1_000
/** Writing takes at most this share of the time. */
const share = 0.05
const mostEvents = 300

type Deps = { store: Store; change: SessionChanging; log: Log }
type Start = {
  step: Step
  is_new: boolean
  written: number
  timer: NodeJS.Timeout | undefined
  writing: Promise<void> | undefined
}

export function createSessionSteps({ store, change, log }: Deps): SessionSteps {
  const starts = new Map<string, Start>()

  async function tell(session_id: string, { step, percent }: Step): Promise<void> {
    try {
      await change(session_id, async (_trx, row, write) => {
        // The start of a session that is `starting` may be on its way to the container.
        if (row.status !== 'preparing' || (row.step === step && row.percent === (percent ?? null))) return
        await write([status('preparing', { step, ...(percent === undefined ? {} : { percent }) })])
      })
    } catch (error) {
      if (!(error instanceof Fault && error.kind === 'not_found')) throw error
    }
  }

  async function write(project_id: string, start: Start): Promise<void> {
    start.is_new = false
    start.written += 1
    for (const session_id of await preparingSessions(store.db, project_id)) await tell(session_id, start.step)
  }

  function writeSoon(project_id: string, start: Start): void {
    if (start.writing || start.timer || !start.is_new || start.written >= mostEvents) return
    const began = performance.now()
    start.writing = write(project_id, start)
      // The steps are not state: the next one is tried again.
      .catch((error: unknown) =>
        log.warn('failed to write the progress of a start', { project_id, reason: messageOf(error) }),
      )
      .finally(() => {
        start.writing = undefined
        if (starts.get(project_id) !== start) return
        const rest = isUrgent(start) ? 0 : Math.max(intervalMs, (performance.now() - began) / share)
        start.timer = setTimeout(() => wake(project_id, start), rest).unref()
      })
  }

  /** The next step of a build waits for its turn; what follows a build is short and is written at once. */
  const isUrgent = ({ is_new, step }: Start) => is_new && step.percent === undefined

  function wake(project_id: string, start: Start): void {
    clearTimeout(start.timer)
    start.timer = undefined
    writeSoon(project_id, start)
  }

  return {
    report(project_id, step) {
      const before = starts.get(project_id)
      const start = before ?? { step, is_new: true, written: 0, timer: undefined, writing: undefined }
      if (before && (before.step.step !== step.step || before.step.percent !== step.percent))
        Object.assign(before, { step, is_new: true })
      starts.set(project_id, start)
      if (isUrgent(start)) wake(project_id, start)
      else writeSoon(project_id, start)
    },
    async end(project_id) {
      const start = starts.get(project_id)
      starts.delete(project_id)
      clearTimeout(start?.timer)
      await start?.writing
    },
  }
}
