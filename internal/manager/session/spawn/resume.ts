// Who may send messages to a session, and which session a spawn resumes instead of creating one. A message acts with the
// session's key, autonomy and tools: they must not exceed the sender's own. Otherwise a project token would gain an admin
// scope, and a session that needs approvals would act through one that does not.
import { isDeepStrictEqual } from 'node:util'
import type { Caller } from '../../../auth/caller.ts'
import { covers, parseScope } from '../../../auth/scope.ts'
import { Fault } from '../../../fault.ts'
import type { Db } from '../../../store/open.ts'
import { type SessionRow, sessionById, subtree } from '../../../store/rows/session/sessions.ts'
import { excess } from './bounds.ts'
import type { SpawnFields } from './spawn.ts'

const holdsNoMore = (row: SessionRow, { scope }: Caller) =>
  row.api_scope === null || covers(scope, parseScope(row.api_scope))

/** Undefined if the caller is not a session. */
async function excessOf(db: Db, { session_id }: Caller, row: SessionRow): Promise<string | undefined> {
  if (!session_id) return undefined
  const sender = await sessionById(db, session_id)
  return sender ? excess(sender, row) : 'your session no longer exists'
}

/** A session may always send messages to its descendants: it gave them their scope and bounds. */
export async function requireMayMessage(db: Db, caller: Caller, row: SessionRow): Promise<void> {
  if (!caller.session_id && holdsNoMore(row, caller)) return
  const below = caller.session_id ? await subtree(db, caller.session_id) : []
  if (below.some(({ id }) => id === row.id)) return
  const more = await excessOf(db, caller, row)
  if (more)
    throw new Fault('forbidden', `session ${row.id} exceeds the bounds of your session: ${more}`, {
      hint: 'spawn your own session with new_session',
    })
  if (holdsNoMore(row, caller)) return
  throw new Fault(
    'forbidden',
    `session ${row.id} has scope ${row.api_scope}, which your scope does not cover`,
    {
      hint: 'spawn your own session with new_session',
    },
  )
}

const compared = [
  'model',
  'reasoning_level',
  'autonomy_level',
  'tools_allowed',
  'tools_disallowed',
  'api_scope',
] as const satisfies (keyof SpawnFields & keyof SessionRow)[]

/** Whether the session has everything that the spawn requests: a different model or scope would be ignored silently. */
export const fits = (row: SessionRow, caller: Caller, fields: SpawnFields): boolean =>
  holdsNoMore(row, caller) &&
  compared.every((name) => fields[name] === undefined || isDeepStrictEqual(fields[name], row[name]))
