// Who may speak to a session, and which one a spawn takes up instead of making another. Whoever speaks to a droid acts
// through its key: that key must hold no more than the speaker does, or a token of one project would be an admin's.
import { isDeepStrictEqual } from 'node:util'
import type { Caller } from '../auth/caller.ts'
import { covers, parseScope } from '../auth/scope.ts'
import { Fault } from '../fault.ts'
import type { Db } from '../store/open.ts'
import { type SessionRow, subtree } from '../store/sessions.ts'
import type { SpawnFields } from './spawn.ts'

const holdsNoMore = (row: SessionRow, { scope }: Caller) =>
  row.api_scope === null || covers(scope, parseScope(row.api_scope))

/** A session may always speak to those below it: it gave them what they hold. */
export async function requireMaySpeak(db: Db, caller: Caller, row: SessionRow): Promise<void> {
  if (holdsNoMore(row, caller)) return
  const below = caller.session_id ? await subtree(db, caller.session_id) : []
  if (below.some(({ id }) => id === row.id)) return
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
