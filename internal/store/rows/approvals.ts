// Approvals: permission requests of agents, and the questions of the approval inbox. A question is open until it is closed once.
import { type Insertable, type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { ApprovalsTable } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'

export type ApprovalRow = Selectable<ApprovalsTable>
export type NewApproval = Insertable<ApprovalsTable>

export async function insertApprovals(db: Db, rows: NewApproval[]): Promise<void> {
  await db
    .insertInto('approvals')
    .values(rows)
    .onConflict((conflict) => conflict.columns(['session_id', 'request_id']).doNothing())
    .execute()
}

/** The new row; undefined if the same call or the same key is known. */
export async function insertQuestion(db: Db, row: NewApproval): Promise<ApprovalRow | undefined> {
  return await db
    .insertInto('approvals')
    .values(row)
    .onConflict((conflict) => conflict.doNothing())
    .returningAll()
    .executeTakeFirst()
}

export async function approvalById(db: Db, id: string): Promise<ApprovalRow | undefined> {
  return await db.selectFrom('approvals').selectAll().where('id', '=', id).executeTakeFirst()
}

export async function approvalsById(db: Db, ids: string[]): Promise<ApprovalRow[]> {
  if (ids.length === 0) return []
  return await db.selectFrom('approvals').selectAll().where('id', 'in', ids).execute()
}

/** What a question is recognised by when it is asked again. */
export type QuestionIdentity = {
  kind: ApprovalRow['kind']
  session_id: string | null
  call_id: string | null
  ask_key: string | null
}

export async function sameQuestion(db: Db, of: QuestionIdentity): Promise<ApprovalRow | undefined> {
  const query = db.selectFrom('approvals').selectAll()
  if (of.call_id !== null)
    return await query
      .where('session_id', '=', of.session_id)
      .where('kind', '=', of.kind)
      .where('call_id', '=', of.call_id)
      .executeTakeFirst()
  return await query.where('ask_key', '=', of.ask_key).where('status', '=', 'open').executeTakeFirst()
}

export type ReceiptBinding = { session_id: string; server_id: string; tool: string; arguments_hash: string }

const bound = (of: ReceiptBinding) =>
  sql<boolean>`kind = 'tool' and session_id = ${of.session_id} and server_id = ${of.server_id} and tool = ${of.tool}
    and arguments_hash = ${of.arguments_hash} and used_at is null and revoked_at is null and expires_at > now()`

/**
 * Questions about the same call that are open, or allowed once and not used: the call that asked them may be gone. What is
 * remembered is not a receipt: it may have been revoked, or an admin may want it asked since.
 */
export async function unusedQuestions(db: Db, of: ReceiptBinding, limit: number): Promise<ApprovalRow[]> {
  return await db
    .selectFrom('approvals')
    .selectAll()
    .where(bound(of))
    .where(sql<boolean>`(status = 'open' or status = 'allowed' and scope = 'once')`)
    .orderBy('created_at')
    .limit(limit)
    .execute()
}

/** Marks the receipt as used; false if it was used, is not allowed, has expired, or is bound to something else. */
export async function useReceipt(db: Db, id: string, of: ReceiptBinding, used_by: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('approvals')
    .set({ used_at: sql<string>`now()`, used_by })
    .where('id', '=', id)
    .where('status', '=', 'allowed')
    .where(bound(of))
    .executeTakeFirst()
  return numUpdatedRows === 1n
}

/** Decisions that are remembered for this session or project, and still in force. */
export async function rememberedDecisions(
  db: Db,
  of: { session_id: string; project_id: string | null; server_id: string; tool: string },
): Promise<Pick<ApprovalRow, 'id' | 'status' | 'reason' | 'decided_by_admin'>[]> {
  return await db
    .selectFrom('approvals')
    .select(['id', 'status', 'reason', 'decided_by_admin'])
    .where('kind', '=', 'tool')
    .where('server_id', '=', of.server_id)
    .where('tool', '=', of.tool)
    .where('revoked_at', 'is', null)
    .where('status', 'in', ['allowed', 'denied'])
    .where(
      sql<boolean>`(scope = 'session' and session_id = ${of.session_id}
        or scope = 'always' and (project_id is null or project_id = ${of.project_id}))`,
    )
    .execute()
}

export type ApprovalFilter = {
  project_id?: string
  session_id?: string
  status?: ApprovalRow['status']
  kind?: ApprovalRow['kind']
  /** Only remembered decisions that are in force. */
  scope?: ApprovalRow['scope']
}

export async function listApprovals(
  db: Db,
  filter: ApprovalFilter & PageRequest,
): Promise<Page<ApprovalRow>> {
  const from = readCursor(filter.cursor)
  let query = db
    .selectFrom('approvals')
    .selectAll()
    .orderBy('created_at')
    .orderBy('id')
    .limit(filter.limit + 1)
  if (filter.project_id) query = query.where('project_id', '=', filter.project_id)
  if (filter.session_id) query = query.where('session_id', '=', filter.session_id)
  if (filter.status) query = query.where('status', '=', filter.status)
  if (filter.kind) query = query.where('kind', '=', filter.kind)
  if (filter.scope) query = query.where('scope', '=', filter.scope).where('revoked_at', 'is', null)
  if (from) query = query.where(sql<boolean>`(created_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/** Numbers of open questions, without permission requests. */
export async function countOpen(
  db: Db,
  of: { session_id: string | null; project_id: string | null },
): Promise<{ session: number; project: number }> {
  const { rows } = await sql<{ session: number; project: number }>`
    select count(*) filter (where session_id = ${of.session_id}) as session, count(*) as project from approvals
    where status = 'open' and kind <> 'permission' and project_id is not distinct from ${of.project_id}::uuid`.execute(
    db,
  )
  return rows[0]!
}

/** Whether something outside must answer before the session continues, other than a permission request of its agent. */
export async function hasOpenQuestion(db: Db, session_id: string): Promise<boolean> {
  const { rows } = await sql<{ open: boolean }>`
    select exists (select from approvals where session_id = ${session_id} and status = 'open' and kind <> 'permission')
      or exists (select from caller_requests where session_id = ${session_id} and status = 'open') as open`.execute(
    db,
  )
  return rows[0]!.open
}

/** The open questions of these sessions, without permission requests, which the agents report themselves. */
export async function openQuestions(
  db: Db,
  session_ids: string[],
): Promise<{ id: string; session_id: string }[]> {
  if (session_ids.length === 0) return []
  const rows = await db
    .selectFrom('approvals')
    .select(['id', 'session_id'])
    .where('session_id', 'in', session_ids)
    .where('status', '=', 'open')
    .where('kind', '!=', 'permission')
    .orderBy('created_at')
    .execute()
  return rows.map(({ id, session_id }) => ({ id, session_id: session_id! }))
}

export type Closing = {
  status: 'allowed' | 'denied' | 'expired' | 'cancelled'
  reason: string | null
  decided_by: string | null
  decided_by_admin?: boolean
  scope?: ApprovalRow['scope']
  content?: Record<string, unknown> | null
}

/** The closed row; undefined if it was no longer open, or is overdue and closed by a decision. */
export async function closeApproval(
  db: Db,
  id: string,
  { content, ...closing }: Closing,
): Promise<ApprovalRow | undefined> {
  let query = db
    .updateTable('approvals')
    .set({
      ...closing,
      ...(content ? { content: JSON.stringify(content) } : {}),
      decided_at: new Date().toISOString(),
    })
    .where('id', '=', id)
    .where('status', '=', 'open')
  if (closing.status === 'allowed' || closing.status === 'denied')
    query = query.where(sql<boolean>`(expires_at is null or expires_at > now())`)
  return await query.returningAll().executeTakeFirst()
}

/** Open questions about a server, for one who answers or removes it. */
export async function openAbout(
  db: Db,
  of: { server_id: string; kind?: ApprovalRow['kind']; tool?: string; ask_key?: string },
): Promise<ApprovalRow[]> {
  let query = db
    .selectFrom('approvals')
    .selectAll()
    .where('server_id', '=', of.server_id)
    .where('status', '=', 'open')
  if (of.kind) query = query.where('kind', '=', of.kind)
  if (of.tool !== undefined) query = query.where('tool', '=', of.tool)
  if (of.ask_key !== undefined) query = query.where('ask_key', '=', of.ask_key)
  return await query.orderBy('id').execute()
}

/** The row as it is now; undefined if it remembers nothing, or not any more. */
export async function revokeRemembered(
  db: Db,
  which: { id: string } | { server_id: string },
  revoked_by: string | null,
): Promise<ApprovalRow | undefined> {
  const query = db
    .updateTable('approvals')
    .set({ revoked_at: sql<string>`now()`, revoked_by })
    .where('scope', 'in', ['session', 'always'])
    .where('revoked_at', 'is', null)
  return await ('id' in which
    ? query.where('id', '=', which.id)
    : query.where('server_id', '=', which.server_id)
  )
    .returningAll()
    .executeTakeFirst()
}

export async function overdueApprovals(db: Db, limit: number): Promise<ApprovalRow[]> {
  return await db
    .selectFrom('approvals')
    .selectAll()
    .where('status', '=', 'open')
    .where('expires_at', '<=', sql<string>`now()`)
    .limit(limit)
    .execute()
}

/** Closed questions without a session; those of a session are deleted with it. Remembered decisions stay. */
export async function deleteClosedApprovals(db: Db, before: Date): Promise<void> {
  await db
    .deleteFrom('approvals')
    .where('session_id', 'is', null)
    .where('decided_at', '<', before.toISOString())
    .where(sql<boolean>`(scope is distinct from 'always' or revoked_at is not null)`)
    .execute()
}

/** Cancels the open permission requests of a session, except for those in `still`; `all`: its questions as well. */
export async function cancelApprovals(
  db: Db,
  session_id: string,
  reason: string,
  { still = [], all = false }: { still?: string[]; all?: boolean } = {},
): Promise<void> {
  let query = db
    .updateTable('approvals')
    .set({ status: 'cancelled', reason, decided_at: new Date().toISOString() })
    .where('session_id', '=', session_id)
    .where('status', '=', 'open')
  if (!all) query = query.where('kind', '=', 'permission')
  if (still.length > 0) query = query.where('request_id', 'not in', still)
  await query.execute()
}
