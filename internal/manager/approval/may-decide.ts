// Who may decide. People decide for their projects, an admin for all. A session decides only for its descendants, and allows only
// what it may do itself without being asked: otherwise it would spawn a child to ask, and approve its own call. Tokens that a
// session created act as that session.
import type { Caller } from '../../auth/caller.ts'
import { Fault } from '../../fault.ts'
import type { Db } from '../../store/open.ts'
import type { ApprovalRow } from '../../store/rows/approvals.ts'
import { sessionById, subtree } from '../../store/rows/session/sessions.ts'
import type { Answer } from './approval.ts'
import { atLeast } from './policy.ts'

export const isAdmin = ({ scope, session_id }: Caller): boolean =>
  scope.kind === 'admin' && !scope.read_only && session_id === undefined

async function requireSessionMayDecide(
  db: Db,
  session_id: string,
  asked: ApprovalRow,
  { decision, scope = 'once' }: Answer,
): Promise<void> {
  const below = (await subtree(db, session_id)).filter(({ id }) => id !== session_id)
  if (!below.some(({ id }) => id === asked.session_id))
    throw new Fault(
      'forbidden',
      `approval ${asked.id} belongs to a session that is not a descendant of yours`,
      {
        hint: 'a session decides only requests of its own descendants; use another token to decide this one',
      },
    )
  if (asked.kind === 'permission' || decision === 'deny') return
  const decider = await sessionById(db, session_id)
  if (asked.allowed_at === null || !decider || !atLeast(decider.autonomy_level, asked.allowed_at))
    throw new Fault(
      'forbidden',
      `your session may not allow approval ${asked.id}: it would have to ask for the same call itself`,
      { hint: 'a person decides it, with a token that belongs to no session' },
    )
  if (scope !== 'once')
    throw new Fault('forbidden', 'a session allows a call only once, not for the session or always')
}

export async function requireMayDecide(
  db: Db,
  caller: Caller,
  asked: ApprovalRow,
  answer: Answer,
): Promise<void> {
  if (caller.kind === 'schedule') throw new Fault('forbidden', 'a schedule does not decide approvals')
  if (caller.session_id) return await requireSessionMayDecide(db, caller.session_id, asked, answer)
  if (
    asked.set_by_admin &&
    answer.decision === 'allow' &&
    (answer.scope ?? 'once') !== 'once' &&
    !isAdmin(caller)
  )
    throw new Fault(
      'forbidden',
      'an admin set that this tool is asked: only an admin allows it for longer than once',
    )
}

/** A remembered denial of an admin is revoked by an admin only; what is allowed may be revoked by everybody who may decide. */
export function requireMayRevoke(caller: Caller, asked: ApprovalRow): void {
  if (caller.session_id || caller.kind === 'schedule')
    throw new Fault('forbidden', 'a session does not revoke decisions', {
      hint: 'use a token that belongs to no session',
    })
  if (asked.status === 'denied' && asked.decided_by_admin && !isAdmin(caller))
    throw new Fault('forbidden', `approval ${asked.id} was denied by an admin: only an admin revokes it`)
}
