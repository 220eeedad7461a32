// Who may speak to a session, and which one a spawn takes up instead of making another. Whoever speaks to a droid acts
// through its key and with its autonomy and tools: they must be no more than the speaker's own, or a token of one project
// would be an admin's, and a session that has to ask would act through one that need not.
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

/** Undefined for a caller that is no session. */
async function excessOf(db: Db, { session_id }: Caller, row: SessionRow): Promise<string | undefined> {
  if (!session_id) return undefined
  const speaker = await sessionById(db, session_id)
  return speaker ? excess(speaker, row) : 'your session is gone'
}

/** A session may always speak to those below it: it gave them what they hold. */
export async function requireMaySpeak(db: Db, caller: Caller, row: SessionRow): Promise<void> {
  if (!caller.session_id && holdsNoMore(row, caller)) return
  const below = caller.session_id ? await subtree(db, caller.session_id) : []
  if (below.some(({ id }) => id === row.id)) return
  const more = await excessOf(db, caller, row)
  if (more)
    throw new Fault('forbidden', `session ${row.id} may do more than yours: ${more}`, {
      hint: 'spawn a session of your own with new_session',
    })
  if (holdsNoMore(row, caller)) return
  throw new Fault(
    'forbidden',
    `session ${row.id} acts with the scope ${row.api_scope}, which is more than yours`,
    {
      hint: 'spawn a session of your own with new_session',
    },
  )
}

const asked = [
  'model',
  'reasoning_level',
  'autonomy_level',
  'tools_allowed',
  'tools_disallowed',
  'api_scope',
] as const satisfies (keyof SpawnFields & keyof SessionRow)[]

/** It is what was asked for: another model or scope than it has would be a wish that nobody heard. */
export const fits = (row: SessionRow, caller: Caller, fields: SpawnFields): boolean =>
  holdsNoMore(row, caller) &&
  asked.every((name) => fields[name] === undefined || isDeepStrictEqual(fields[name], row[name]))
