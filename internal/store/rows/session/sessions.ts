import { type Insertable, type Selectable, sql, type Updateable } from 'kysely'
import { finalStatuses, isFinal, type SessionStatus } from '../../../protocol/session-status.ts'
import type { Db } from '../../open.ts'
import type { SessionsTable } from '../../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from '../page.ts'

export type SessionRow = Selectable<SessionsTable>
export type SessionChange = Updateable<SessionsTable>

/** Ended, or its end was requested: it may not act, even if its container has not reported the end. */
export const actsNoMore = (row: {
  status: SessionStatus
  end_requested_at?: string | null | undefined
}): boolean => isFinal(row.status) || Boolean(row.end_requested_at)

/** A new session, for the statement that also writes its first events and its first command. */
export const sessionInsertion = (db: Db, row: Insertable<SessionsTable>) =>
  db.insertInto('sessions').values(row)

export async function sessionById(db: Db, id: string): Promise<SessionRow | undefined> {
  return await db.selectFrom('sessions').selectAll().where('id', '=', id).executeTakeFirst()
}

export type KeyHolder = Pick<
  SessionRow,
  | 'id'
  | 'project_id'
  | 'workspace_id'
  | 'droid'
  | 'autonomy_level'
  | 'status'
  | 'end_requested_at'
  | 'api_scope'
  | 'token_id'
  | 'key_expires_at'
> & {
  disabled_tools: string[]
  api_scope_grant: string | null
  token_revoked_at: string | null
  token_expires_at: string | null
}

const keyHolders = (db: Db) =>
  db
    .selectFrom('sessions')
    .innerJoin('projects', 'projects.id', 'sessions.project_id')
    .leftJoin('tokens', 'tokens.id', 'sessions.token_id')
    .select([
      'sessions.id',
      'project_id',
      'workspace_id',
      'sessions.droid',
      'autonomy_level',
      'status',
      'end_requested_at',
      'api_scope',
      'token_id',
      'key_expires_at',
    ])
    .select(['projects.disabled_tools', 'projects.api_scope_grant'])
    .select(['tokens.revoked_at as token_revoked_at', 'tokens.expires_at as token_expires_at'])

export async function sessionByKeyHash(db: Db, hash: Buffer): Promise<KeyHolder | undefined> {
  return await keyHolders(db).where('key_hash', '=', hash).executeTakeFirst()
}

export async function sessionKeyHolder(db: Db, id: string): Promise<KeyHolder | undefined> {
  return await keyHolders(db).where('sessions.id', '=', id).executeTakeFirst()
}

/** With the limit of its project, if that differs from the config. */
export type LockedSession = SessionRow & { session_mb: number | null }

/**
 * Access tokens of an issuer are short-lived and are renewed. When their holder sends another message to a session, the keys
 * of the session and of its descendants are extended to the expiry of the current token.
 */
export async function extendKeys(trx: Db, root_session_id: string, expires_at: string): Promise<void> {
  await trx
    .updateTable('sessions')
    .set({ key_expires_at: expires_at })
    .where('root_session_id', '=', root_session_id)
    .where('key_expires_at', '<', expires_at)
    .execute()
}

/** Ordered by id, so that transactions that lock several rows do not deadlock. */
export async function lockSessions(trx: Db, ids: string[]): Promise<Map<string, LockedSession>> {
  const rows = await trx
    .selectFrom('sessions')
    .selectAll()
    .select(
      sql<
        number | null
      >`(select (limits ->> 'session_mb')::int from projects where projects.id = sessions.project_id)`.as(
        'session_mb',
      ),
    )
    .where('id', 'in', ids)
    .orderBy('id')
    .forUpdate()
    .execute()
  return new Map(rows.map((row) => [row.id, row]))
}

/** Locks the session against ending until the transaction ends. False if it is missing or has ended. */
export async function holdSession(trx: Db, id: string): Promise<boolean> {
  const row = await trx
    .selectFrom('sessions')
    .select(['status', 'end_requested_at'])
    .where('id', '=', id)
    .forShare()
    .executeTakeFirst()
  return row !== undefined && !actsNoMore(row)
}

/** Sessions of the project cannot be resumed afterwards. */
export async function closeSessions(trx: Db, project_id: string): Promise<void> {
  await trx
    .updateTable('sessions')
    .set({ end_requested_at: sql<string>`now()` })
    .where('project_id', '=', project_id)
    .where('end_requested_at', 'is', null)
    .execute()
}

export async function updateSession(db: Db, id: string, change: SessionChange): Promise<void> {
  await db
    .updateTable('sessions')
    .set({ ...change, updated_at: new Date().toISOString() })
    .where('id', '=', id)
    .execute()
}

/** Only the progress of the log, which is what most batches change. For the statement that writes the events. */
export const advancement = (
  rows: { id: string; next_index: number; committed_seq: number; stored_bytes: number }[],
) => sql`
    update sessions set next_index = moved.next_index, committed_seq = moved.committed_seq,
      stored_bytes = moved.stored_bytes, updated_at = now()
    from unnest(${rows.map((row) => row.id)}::text[], ${rows.map((row) => row.next_index)}::bigint[],
      ${rows.map((row) => row.committed_seq)}::bigint[], ${rows.map((row) => row.stored_bytes)}::bigint[])
      as moved (id, next_index, committed_seq, stored_bytes)
    where sessions.id = moved.id`

export async function sessionByIdempotencyKey(
  db: Db,
  project_id: string,
  created_by: string,
  key: string,
): Promise<SessionRow | undefined> {
  return await db
    .selectFrom('sessions')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('created_by', '=', created_by)
    .where('idempotency_key', '=', key)
    .executeTakeFirst()
}

/** The session that a spawn without `new_session` resumes: live, failed, or completed without a request to end it. */
export async function latestOfWorkspace(
  db: Db,
  project_id: string,
  workspace_id: string,
  droid: string | undefined,
): Promise<SessionRow | undefined> {
  let query = db
    .selectFrom('sessions')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('workspace_id', '=', workspace_id)
    .where('parent_session_id', 'is', null)
    .where('end_requested_at', 'is', null)
    .where('full_at', 'is', null)
    .where('status', '!=', 'cancelled')
    .orderBy('created_at', 'desc')
    .limit(1)
  if (droid) query = query.where('droid', '=', droid)
  return await query.executeTakeFirst()
}

export async function listSessions(
  db: Db,
  filter: { project_id?: string; status?: SessionStatus; parent_session_id?: string } & PageRequest,
): Promise<Page<SessionRow>> {
  const from = readCursor(filter.cursor)
  let query = db
    .selectFrom('sessions')
    .selectAll()
    .orderBy('created_at')
    .orderBy('id')
    .limit(filter.limit + 1)
  if (filter.project_id) query = query.where('project_id', '=', filter.project_id)
  if (filter.status) query = query.where('status', '=', filter.status)
  if (filter.parent_session_id) query = query.where('parent_session_id', '=', filter.parent_session_id)
  if (from) query = query.where(sql<boolean>`(created_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), filter.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/** A session and its descendants, parents before children. */
export async function subtree(db: Db, id: string): Promise<SessionRow[]> {
  const top = await sessionById(db, id)
  if (!top) return []
  const tree = await db
    .selectFrom('sessions')
    .selectAll()
    .where('root_session_id', '=', top.root_session_id)
    .orderBy('depth')
    .execute()
  const inside = new Set([id])
  for (const row of tree) if (row.parent_session_id && inside.has(row.parent_session_id)) inside.add(row.id)
  return tree.filter((row) => inside.has(row.id))
}

export async function activeSessions(db: Db, project_id: string): Promise<SessionRow[]> {
  return await db
    .selectFrom('sessions')
    .selectAll()
    .where('project_id', '=', project_id)
    .where('status', 'not in', finalStatuses)
    .where('ended_at', 'is', null)
    .execute()
}

export async function preparingSessions(db: Db, project_id: string): Promise<string[]> {
  const rows = await db
    .selectFrom('sessions')
    .select('id')
    .where('project_id', '=', project_id)
    .where('status', '=', 'preparing')
    .execute()
  return rows.map(({ id }) => id)
}

/** Projects with sessions that have not ended and are not hibernated. */
export async function projectsWithActiveSessions(db: Db): Promise<string[]> {
  const rows = await db
    .selectFrom('sessions')
    .select('project_id')
    .distinct()
    .where('status', 'not in', finalStatuses)
    .where('ended_at', 'is', null)
    .where('hibernated', '=', false)
    .execute()
  return rows.map((row) => row.project_id)
}

/** Those of the given sessions that belong to the project. */
export async function projectSessions(db: Db, project_id: string, ids: string[]): Promise<SessionRow[]> {
  if (ids.length === 0) return []
  return await db
    .selectFrom('sessions')
    .selectAll()
    .where('id', 'in', ids)
    .where('project_id', '=', project_id)
    .execute()
}

export type Usage = {
  sessions: number
  active: number
  spawned_last_minute: number
  input_tokens: number
  output_tokens: number
  /** Includes deleted sessions. */
  cost_usd: number
  /** The maximum cost of its running requests to models. */
  reserved_usd: number
}

export async function projectUsage(db: Db, project_id: string): Promise<Usage> {
  const { rows } = await sql<Usage>`
    select count(*)::int as sessions,
      (count(*) filter (where status not in (${sql.join(finalStatuses)})))::int as active,
      (count(*) filter (where created_at > now() - interval '1 minute'))::int as spawned_last_minute,
      coalesce(sum(input_tokens), 0)::bigint as input_tokens,
      coalesce(sum(output_tokens), 0)::bigint as output_tokens,
      coalesce((select spent_usd from project_spending where project_id = ${project_id}), 0)
        + coalesce((select sum(usd) from project_costs where project_id = ${project_id}), 0) as cost_usd,
      coalesce((select sum(amount_usd) from model_reservations where project_id = ${project_id}), 0) as reserved_usd
    from sessions where project_id = ${project_id}`.execute(db)
  return rows[0]!
}

export async function treeUsage(
  db: Db,
  root_session_id: string,
): Promise<{ sessions: number; input_tokens: number; output_tokens: number; cost_usd: number }> {
  const { rows } = await sql<{
    sessions: number
    input_tokens: number
    output_tokens: number
    cost_usd: number
  }>`
    select count(*)::int as sessions, coalesce(sum(input_tokens), 0)::bigint as input_tokens,
      coalesce(sum(output_tokens), 0)::bigint as output_tokens, coalesce(sum(cost_usd), 0)::float8 as cost_usd
    from sessions where root_session_id = ${root_session_id}`.execute(db)
  return rows[0]!
}

export async function idleSince(db: Db, before: Date): Promise<SessionRow[]> {
  return await db
    .selectFrom('sessions')
    .selectAll()
    .where('status', '=', 'idle')
    .where('idle_at', '<', before.toISOString())
    .where('end_requested_at', 'is', null)
    .limit(1000)
    .execute()
}

/** Sessions that ended before `before`, with their events. Trees with a session that has not ended are kept. */
export async function deleteOverSessions(
  db: Db,
  filter: { project_id?: string; before: Date },
): Promise<string[]> {
  let query = db
    .deleteFrom('sessions')
    .where('status', 'in', finalStatuses)
    .where('ended_at', '<', filter.before.toISOString())
    .where(
      sql<boolean>`not exists (select 1 from sessions active where active.root_session_id = sessions.root_session_id and active.status not in (${sql.join(finalStatuses)}))`,
    )
  if (filter.project_id) query = query.where('project_id', '=', filter.project_id)
  return (await query.returning('id').execute()).map(({ id }) => id)
}

/** Sessions by status. */
export async function countSessions(db: Db): Promise<Record<string, number>> {
  const rows = await db
    .selectFrom('sessions')
    .select(['status', (all) => all.fn.countAll<number>().as('count')])
    .groupBy('status')
    .execute()
  return Object.fromEntries(rows.map(({ status, count }) => [status, Number(count)]))
}
