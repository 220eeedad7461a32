// Event streams for those who do not speak MCP: the same scope check, the same audit and the same events as the tool.

import type { Caller } from '../auth/caller.ts'
import { sees } from '../auth/scope.ts'
import { Fault, unknown } from '../fault.ts'
import { patterns } from '../ids.ts'
import { type IndexedEvent, shownEvent } from '../manager/events/event-log.ts'
import type { Managers } from '../manager/managers.ts'

export type Followed = { id: string; event: string; data: string }
type Source = (signal: AbortSignal) => AsyncIterable<Followed[]>

/** Of one write: what comes together is sent together, and a slow reader is not ahead by more than this. */
const mostChars = 64 * 1024

/** Many follow the same events: each is put into words once. */
const texts = new WeakMap<IndexedEvent, string>()
function textOf(event: IndexedEvent): string {
  const known = texts.get(event)
  if (known !== undefined) return known
  const text = JSON.stringify(shownEvent(event))
  texts.set(event, text)
  return text
}

function* portions<E extends IndexedEvent>(events: E[], idOf: (event: E) => number): Generator<Followed[]> {
  let portion: Followed[] = []
  let chars = 0
  for (const event of events) {
    const data = textOf(event)
    portion.push({ id: String(idOf(event)), event: event.type, data })
    chars += data.length
    if (chars < mostChars) continue
    yield portion
    portion = []
    chars = 0
  }
  if (portion.length > 0) yield portion
}

export interface Follow {
  /** Throws before anything is sent if the caller may not see it. `since` is an index, -1 for the whole history. */
  session(caller: Caller, request_id: string, session_id: string, since: number): Promise<Source>
  /** `since` is a position in the order of the whole log. */
  project(caller: Caller, request_id: string, project_id: string, since: number): Promise<Source>
}

export function createFollow(managers: Managers): Follow {
  const audit = (caller: Caller, request_id: string, tool: string, project_id: string) =>
    managers.audit.record({
      at: new Date().toISOString(),
      caller_kind: caller.kind,
      caller_id: caller.id,
      token_id: caller.token_id,
      session_id: null,
      via: 'http',
      tool,
      action: 'stream',
      project_id,
      outcome: 'ok',
      milliseconds: 0,
      request_id,
    })

  return {
    async session(caller, request_id, session_id, since) {
      if (!patterns.session.test(session_id))
        throw new Fault('invalid', 'the path holds no session id (gogol_…)')
      const project_id = await managers.sessions.projectOf(session_id)
      if (!project_id || !sees(caller.scope, project_id)) throw unknown('session', session_id)
      audit(caller, request_id, 'session', project_id)
      return async function* (signal) {
        for await (const events of managers.events.followSession(session_id, since, signal))
          yield* portions(events, ({ index }) => index)
      }
    },
    async project(caller, request_id, project_id, since) {
      if (!patterns.project.test(project_id))
        throw new Fault('invalid', 'the path holds no project id (a UUID)')
      if (!sees(caller.scope, project_id)) throw unknown('project', project_id)
      await managers.projects.require(project_id)
      audit(caller, request_id, 'project', project_id)
      return async function* (signal) {
        for await (const events of managers.events.followProject(project_id, since, signal))
          yield* portions(events, ({ position }) => position)
      }
    },
  }
}
