// Notifications about sessions to connected MCP clients: each event as a logging notification on the stream of a 2025
// session, and an update of the session's resource to the subscriptions of the 2026 era. The caller that spawned a session
// gets all its events except requests to other callers; a caller that offers tools gets the requests to it. All other
// callers that may see the session use `events` and the event streams.
import type { Caller } from '../auth/caller.ts'
import { sees } from '../auth/scope.ts'
import type { Log } from '../log.ts'
import { shownEvent } from '../manager/events/event-log.ts'
import type { Committed } from '../manager/events/log-writer.ts'
import type { TouchedSession } from '../store/rows/callers.ts'
import type { Notify } from './notify.ts'
import { sessionUri } from './resources.ts'

type DeclaredBy = (session_id: string, caller_id: string) => Promise<string | undefined>
const ofCallers = ['caller_tool_request', 'caller_tool_result']

export function createSessionNotices(options: {
  notify: Notify
  declaredBy: DeclaredBy
  log: Log
}): (committed: Committed) => void {
  const { notify, log } = options

  function tell(event: Committed['events'][number], to: string | undefined): void {
    const message = { level: 'info', logger: 'oubliette.session', data: shownEvent(event) } as const
    notify.message(message, (caller) => caller.id === to && sees(caller.scope, event.project_id))
  }

  async function tellCaller(event: Committed['events'][number]): Promise<void> {
    tell(event, await options.declaredBy(event.session_id, String(event.data.caller_id)))
  }

  const mayHear = (row: TouchedSession) => (caller: Caller) => sees(caller.scope, row.project_id)

  return ({ rows, events }) => {
    const owners = new Map(rows.map((row) => [row.id, row.created_by]))
    for (const event of events)
      if (ofCallers.includes(event.type))
        tellCaller(event).catch((error: unknown) =>
          log.warn('failed to notify a caller', { session_id: event.session_id, error }),
        )
      else tell(event, owners.get(event.session_id))
    for (const row of rows)
      notify.publish({ kind: 'resource_updated', uri: sessionUri(row.id) }, mayHear(row))
  }
}
