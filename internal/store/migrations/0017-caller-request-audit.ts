// A request to a caller keeps the audit row that the door built for the droid's call. `caller_calls` completes it with the
// outcome and inserts it in the statement that closes the request, in whichever server process that is.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table caller_requests add column audit jsonb`.execute(db)
  await sql`
    update caller_requests as request set audit = jsonb_build_object('at', request.created_at, 'caller_kind', 'session',
      'caller_id', request.session_id, 'token_id', sessions.token_id, 'session_id', request.session_id, 'via', 'socket',
      'tool', 'caller_tool', 'action', request.caller_id || '_' || request.tool, 'project_id', sessions.project_id,
      'request_id', request.id)
    from sessions where sessions.id = request.session_id and request.status = 'open'`.execute(db)
}
