// Sessions by a unique prefix of their id, as tables show them. Only the command line accepts prefixes; the server receives
// full ids.
import { Fault } from '../../../internal/fault.ts'
import { callTool, type Endpoint } from '../client/call.ts'
import { allPages } from './fetch.ts'
import { lists } from './output/lists.ts'
import { shortId } from './output/text.ts'

const prefix = 'gogol_'
const full_length = prefix.length + 20
const shown_matches = 5

type Session = { session_id: string; project_id: string; status: string; droid: string }

export async function listSessions(
  where: Endpoint,
  filter: Record<string, unknown> = {},
): Promise<Session[]> {
  const call = (args: Record<string, unknown>) => callTool(where, 'session', { action: 'list', ...args })
  return (await allPages(call, filter, lists['session list']!)).sessions as Session[]
}

/** The full id for a full id or a unique prefix, with or without `gogol_`. */
export function matchSession(given: string, sessions: Session[]): string {
  const start = given.startsWith(prefix) ? given : `${prefix}${given}`
  const found = sessions.filter(({ session_id }) => session_id.startsWith(start))
  if (found.length === 1) return found[0]!.session_id
  if (found.length === 0)
    throw new Fault('not_found', `no session ${given}`, { hint: 'see "./oubliette session list"' })
  const matches = found
    .slice(0, shown_matches)
    .map(({ session_id, droid, status }) => `${session_id} (${droid}, ${status})`)
  const rest = found.length > shown_matches ? ` and ${found.length - shown_matches} more` : ''
  throw new Fault('invalid', `session prefix "${shortId(given)}" is ambiguous`, {
    hint: `matches: ${matches.join(', ')}${rest}`,
  })
}

export async function resolveSession(where: Endpoint, given: string): Promise<string> {
  if (given.startsWith(prefix) && given.length >= full_length) return given
  return matchSession(given, await listSessions(where))
}

const fields = ['session_id', 'parent_session_id']

export async function resolveSessions(
  where: Endpoint,
  args: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  const resolved = { ...args }
  for (const name of fields) {
    const given = args[name]
    if (typeof given === 'string') resolved[name] = await resolveSession(where, given)
  }
  return resolved
}
