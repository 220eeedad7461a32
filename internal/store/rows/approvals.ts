import { type Insertable, type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { ApprovalsTable } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'

export type ApprovalRow = Selectable<ApprovalsTable>

export async function insertApprovals(db: Db, rows: Insertable<ApprovalsTable>[]): Promise<void> {
  await db
    .insertInto('approvals')
    .values(rows)
    .onConflict((conflict) => conflict.columns(['session_id', 'request_id']).doNothing())
    .execute()
}

export async function approvalById(db: Db, id: string): Promise<ApprovalRow | undefined> {
  return await db.selectFrom('approvals').selectAll().where('id', '=', id).executeTakeFirst()
}

export async function listApprovals(
  db: Db,
  filter: { project_id?: string; session_id?: string; status?: ApprovalRow['status'] } & PageRequest,
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
  if (from) query = query.where(sql<boolean>`(created_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/** The decided row; undefined if it was no longer open. */
export async function decideApproval(
  db: Db,
  id: string,
  decision: { status: 'allowed' | 'denied'; reason: string | null; decided_by: string },
): Promise<ApprovalRow | undefined> {
  return await db
    .updateTable('approvals')
    .set({ ...decision, decided_at: new Date().toISOString() })
    .where('id', '=', id)
    .where('status', '=', 'open')
    .returningAll()
    .executeTakeFirst()
}

/** Cancels the open approvals of a session, except for the requests in `still`. */
export async function cancelApprovals(
  db: Db,
  session_id: string,
  reason: string,
  still: string[] = [],
): Promise<void> {
  let query = db
    .updateTable('approvals')
    .set({ status: 'cancelled', reason, decided_at: new Date().toISOString() })
    .where('session_id', '=', session_id)
    .where('status', '=', 'open')
  if (still.length > 0) query = query.where('request_id', 'not in', still)
  await query.execute()
}
