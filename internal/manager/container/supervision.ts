// Handles messages of supervisors: hello, events, ends of commands. The rows decide which of its sessions still count.
import type { ThrottledWarn } from '../../lib/throttled-log.ts'
import type { Log } from '../../log.ts'
import type { HelloAnswer, SupervisorHello } from '../../protocol/messages.ts'
import { isBeforeStart, isFinal } from '../../protocol/session-status.ts'
import { restartedReason } from '../../protocol/wire.ts'
import type { SupervisorSide } from '../../relay/supervisor-side.ts'
import type { Store } from '../../store/open.ts'
import { takeLastEnd } from '../../store/rows/projects.ts'
import { pendingCommands } from '../../store/rows/session/commands.ts'
import { activeSessions, projectSessions } from '../../store/rows/session/sessions.ts'
import { withoutContent } from '../events/dropped-events.ts'
import type { EventLog } from '../events/event-log.ts'
import type { Numbered } from '../events/log-writer.ts'
import type { ExecRecords } from '../exec/records.ts'
import type { RequestDispatch } from '../session/dispatch.ts'
import type { PreviousRuns } from '../session/previous-run.ts'

type Deps = {
  store: Store
  events: EventLog
  previousRuns: PreviousRuns
  execs: Pick<ExecRecords, 'hello' | 'ended'>
  log: Log
  requestDispatch: RequestDispatch
  fail: (session_id: string, reason: string) => Promise<void>
  warn: ThrottledWarn
}

export function createSupervision(deps: Deps): SupervisorSide {
  const { store, events, previousRuns, log, requestDispatch, fail, warn } = deps

  /** Why containers ended, while their sessions still report events from before. */
  const ends = new Map<string, string>()

  async function rememberEnd(project_id: string): Promise<void> {
    const last_end = await takeLastEnd(store.db, project_id)
    if (last_end === null) ends.delete(project_id)
    else ends.set(project_id, last_end)
  }

  /** The supervisor of the next start only knows that the container ended, not why. */
  function explained(project_id: string, event: Numbered): Numbered {
    const { reason } = event.data
    const why = ends.get(project_id)
    if (!event.previous_run || !why || event.type !== 'status' || reason !== restartedReason) return event
    return { ...event, data: { ...event.data, reason: why } }
  }

  /** Only the model proxy of the server reports usage as its own. */
  function unproxied(event: Numbered): Numbered {
    if (event.type !== 'usage' || event.data.source === undefined) return event
    const { source: _, ...data } = event.data
    return { ...event, data }
  }

  async function supervisorHello(project_id: string, hello: SupervisorHello): Promise<HelloAnswer> {
    await rememberEnd(project_id)
    const ids = hello.sessions.map(({ session_id }) => session_id)
    const rows = await projectSessions(store.db, project_id, ids)
    const known = new Map(rows.map((row) => [row.id, row]))
    const committed: Record<string, number> = {}
    const unknown: string[] = []
    for (const { session_id, live, last_seq } of hello.sessions) {
      const row = known.get(session_id)
      if (live || !row || row.committed_seq >= last_seq) previousRuns.end(session_id)
      else previousRuns.begin(session_id, last_seq)
      // By its row it has no droid: a process that is left must not keep running.
      const has_droid = row && !isFinal(row.status) && !row.hibernated && !isBeforeStart(row.status)
      if (!row || (live && !has_droid)) unknown.push(session_id)
      else committed[session_id] = row.committed_seq
    }
    await failForgotten(project_id, new Set(ids))
    return { committed, unknown, ...(await deps.execs.hello(project_id, hello)) }
  }

  /** Sessions that should run in this container, but that its supervisor does not have and no pending command starts. */
  async function failForgotten(project_id: string, held: Set<string>): Promise<void> {
    // In this order: a session that is spawned in between is in neither list, or in both.
    const active = await activeSessions(store.db, project_id)
    const pending = new Set(
      (await pendingCommands(store.db, project_id)).map((command) => command.session_id),
    )
    for (const { id, status, hibernated } of active)
      if (!held.has(id) && !pending.has(id) && !hibernated && !isBeforeStart(status)) {
        log.warn('a supervisor lost a session', { project_id, session_id: id })
        await fail(id, 'the container lost the session')
      }
  }

  return {
    supervisorHello,
    supervisorReady: (link) => requestDispatch(link.project_id),
    supervisorGone: () => undefined,
    supervisorOutdated: (project_id, protocol) =>
      warn(project_id, 'the client in a container has another protocol version: restart the container', {
        project_id,
        protocol,
      }),
    execsEnded: (project_id, { execs }) => deps.execs.ended(project_id, execs),
    async events(project_id, { session_id, events: batch }, refused) {
      const until = previousRuns.until(session_id)
      const numbered = batch
        .map(({ seq, type, at, ...data }): Numbered => ({ seq, type, at, data, previous_run: seq <= until }))
        .map((event) => unproxied(explained(project_id, event)))
      const taken = refused ? withoutContent(numbered, refused.message) : numbered
      const answer = await events.receive(project_id, session_id, taken)
      if ('unknown' in answer || answer.committed_seq >= until) previousRuns.end(session_id)
      return answer
    },
  }
}
