// Approvals that droids request before they act. A request is a row and an event; the first decision counts. A session
// decides only for its own descendants: otherwise it could approve its own requests, or have another session of its tree do it.
import type { Caller } from '../../auth/caller.ts'
import { Fault, unknown } from '../../fault.ts'
import type { Store } from '../../store/open.ts'
import { type ApprovalRow, approvalById, decideApproval, listApprovals } from '../../store/rows/approvals.ts'
import type { PageRequest } from '../../store/rows/page.ts'
import { insertCommand } from '../../store/rows/session/commands.ts'
import type { ProjectNames } from '../project/names.ts'
import type { RequestDispatch } from './dispatch.ts'
import type { Sessions } from './sessions.ts'

const shown = (row: ApprovalRow, project_name: string) => ({
  approval_id: row.id,
  session_id: row.session_id,
  project_id: row.project_id,
  project_name,
  request_id: row.request_id,
  tool_call: row.tool_call,
  options: row.options,
  status: row.status,
  reason: row.reason,
  decided_by: row.decided_by,
  created_at: row.created_at,
  decided_at: row.decided_at,
})

export function createApprovals(deps: {
  store: Store
  sessions: Sessions
  projectNames: Pick<ProjectNames, 'of'>
  requestDispatch: RequestDispatch
}) {
  const { store, sessions } = deps
  const { db } = store

  async function require(id: string): Promise<ApprovalRow> {
    const row = await approvalById(db, id)
    if (!row) throw unknown('approval', id)
    return row
  }

  async function described(found: ApprovalRow[]) {
    const nameOf = await deps.projectNames.of(found.map(({ project_id }) => project_id))
    return found.map((row) => shown(row, nameOf(row.project_id)))
  }

  async function requireMayDecide({ session_id }: Caller, asked: ApprovalRow): Promise<void> {
    if (!session_id) return
    const below = (await sessions.family(session_id)).filter((id) => id !== session_id)
    if (!below.includes(asked.session_id))
      throw new Fault(
        'forbidden',
        `approval ${asked.id} belongs to a session that is not a descendant of yours`,
        {
          hint: 'a session decides only requests of its own descendants; use another token to decide this one',
        },
      )
  }

  async function decide(caller: Caller, id: string, decision: 'allow' | 'deny', reason: string | undefined) {
    const asked = await require(id)
    await requireMayDecide(caller, asked)
    const decided = await sessions.change(asked.session_id, async (trx, row, write) => {
      const status = decision === 'allow' ? 'allowed' : 'denied'
      const done = await decideApproval(trx, id, { status, reason: reason ?? null, decided_by: caller.id })
      if (!done) return undefined
      await write([
        {
          type: 'tool_approval_decision',
          at: new Date().toISOString(),
          data: {
            approval_id: id,
            request_id: asked.request_id,
            decision,
            decided_by: caller.id,
            ...(reason ? { reason } : {}),
          },
        },
      ])
      await insertCommand(trx, {
        session_id: row.id,
        project_id: row.project_id,
        kind: 'permission_answer',
        payload: { request_id: asked.request_id, outcome: { outcome: decision } },
      })
      return done
    })
    if (!decided) throw new Fault('conflict', `approval ${id} is already ${(await require(id)).status}`)
    deps.requestDispatch(decided.project_id)
    return (await described([decided]))[0]!
  }

  return {
    decide,
    get: async (id: string) => (await described([await require(id)]))[0]!,
    projectOf: async (id: string) => (await approvalById(db, id))?.project_id,
    async list(
      filter: { project_id?: string; session_id?: string; status?: ApprovalRow['status'] } & PageRequest,
    ) {
      const { items, next_cursor } = await listApprovals(db, filter)
      return { approvals: await described(items), next_cursor }
    },
  }
}
