// What supervisors say: hello, events, goodbye. The rows decide what of a supervisor's memory still counts.
import type { Log } from '../../log.ts'
import type { HelloAnswer, SupervisorHello } from '../../protocol/messages.ts'
import { restartedReason } from '../../protocol/wire.ts'
import type { SupervisorSide } from '../../relay/supervisor-side.ts'
import type { Store } from '../../store/open.ts'
import { takeLastEnd } from '../../store/rows/projects.ts'
import { pendingCommands } from '../../store/rows/session/commands.ts'
import { activeSessions, isOver } from '../../store/rows/session/sessions.ts'
import { withoutContent } from '../events/dropped-events.ts'
import type { EventLog } from '../events/event-log.ts'
import type { Numbered } from '../events/log-writer.ts'
import type { Detached } from '../exec/detached.ts'
import type { PreviousRuns } from '../session/previous-run.ts'

type Deps = {
  store: Store
  events: EventLog
  previousRuns: PreviousRuns
  execs: () => Pick<Detached, 'hello' | 'ended'>
  log: Log
  soon: (project_id: string) => void
  fail: (session_id: string, reason: string) => Promise<void>
  outdated: (project_id: string, protocol: number) => void
}

export function createSupervision(deps: Deps): SupervisorSide {
  const { store, events, previousRuns, log, soon, fail, outdated } = deps

  /** Why the containers ended whose sessions are still telling of it. */
  const ends = new Map<string, string>()

  async function rememberEnd(project_id: string): Promise<void> {
    const last_end = await takeLastEnd(store.db, project_id)
    if (last_end === null) ends.delete(project_id)
    else ends.set(project_id, last_end)
  }

  /** The supervisor of the next start knows only that there was an end. */
  function explained(project_id: string, event: Numbered): Numbered {
    const { reason } = event.data
    const why = ends.get(project_id)
    if (!event.former || !why || event.type !== 'status' || reason !== restartedReason) return event
    return { ...event, data: { ...event.data, reason: why } }
  }

  async function supervisorHello(project_id: string, hello: SupervisorHello): Promise<HelloAnswer> {
    await rememberEnd(project_id)
    const ids = hello.sessions.map(({ session_id }) => session_id)
    const rows =
      ids.length === 0
        ? []
        : await store.db
            .selectFrom('sessions')
            .selectAll()
            .where('id', 'in', ids)
            .where('project_id', '=', project_id)
            .execute()
    const known = new Map(rows.map((row) => [row.id, row]))
    const committed: Record<string, number> = {}
    const unknown: string[] = []
    for (const { session_id, live, last_seq } of hello.sessions) {
      const row = known.get(session_id)
      if (live || !row || row.committed_seq >= last_seq) previousRuns.end(session_id)
      else previousRuns.begin(session_id, last_seq)
      // By the server's word it has no droid: what is left of it must not run on.
      const has_droid = row && !isOver(row.status) && !row.hibernated && row.status !== 'queued'
      if (!row || (live && !has_droid)) unknown.push(session_id)
      else committed[session_id] = row.committed_seq
    }
    await failForgotten(project_id, new Set(ids))
    return { committed, unknown, ...(await deps.execs().hello(project_id, hello)) }
  }

  /** Sessions that should live in this container but that its supervisor knows nothing of and was not to be told of. */
  async function failForgotten(project_id: string, held: Set<string>): Promise<void> {
    // In this order: a session that is made in between is in neither list, or in both.
    const active = await activeSessions(store.db, project_id)
    const told = new Set((await pendingCommands(store.db, project_id)).map((command) => command.session_id))
    for (const { id, status, hibernated } of active)
      if (!held.has(id) && !told.has(id) && !hibernated && status !== 'queued') {
        log.warn('a session is lost to its container', { project_id, session_id: id })
        await fail(id, 'the container lost the session')
      }
  }

  return {
    supervisorHello,
    supervisorReady: (link) => soon(link.project_id),
    supervisorGone: () => undefined,
    supervisorOutdated: outdated,
    execsEnded: (project_id, { execs }) => deps.execs().ended(project_id, execs),
    async events(project_id, { session_id, events: batch }, refused) {
      const until = previousRuns.until(session_id)
      const numbered = batch
        .map(({ seq, type, at, ...data }) => ({
          seq,
          type,
          at,
          data,
          former: seq <= until,
        }))
        .map((event) => explained(project_id, event))
      const taken = refused ? withoutContent(numbered, refused.message) : numbered
      const answer = await events.receive(project_id, session_id, taken)
      if ('unknown' in answer || answer.committed_seq >= until) previousRuns.end(session_id)
      return answer
    },
  }
}
