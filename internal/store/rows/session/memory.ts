// Which sessions use memory of their container, which wait for it, and which can release it.
import { sql } from 'kysely'
import { finalStatuses } from '../../../protocol/session-status.ts'
import type { Db } from '../../open.ts'
import type { SessionRow } from './sessions.ts'

export type MemoryHolder = Pick<SessionRow, 'id' | 'project_id' | 'droid' | 'status'> & {
  /** Since when the session is idle, if its agent can resume. */
  idle_since: string | null
  /** A `hibernate` command is pending. */
  hibernating: boolean
}

const isAtRest = sql<boolean>`status = 'idle' and resumable and agent_session_id is not null and end_requested_at is null`

/** The sessions whose droid is running, starting or will start as soon as the container is ready, and the queued ones in the order of their admission. */
export async function memoryUse(
  db: Db,
  project_id: string,
): Promise<{ holders: MemoryHolder[]; queued: MemoryHolder[] }> {
  const { rows } = await sql<MemoryHolder>`
    select id, project_id, droid, status, coalesce(pending.hibernate, false) as hibernating,
      case when ${isAtRest} and pending.session_id is null then idle_at end as idle_since
    from sessions
    left join (
      select session_id, bool_or(kind = 'hibernate') as hibernate from commands
      where project_id = ${project_id} group by session_id
    ) as pending on pending.session_id = sessions.id
    where project_id = ${project_id} and not hibernated and status not in (${sql.join(finalStatuses)})
    order by queued_at, id`.execute(db)
  return {
    holders: rows.filter(({ status }) => status !== 'queued'),
    queued: rows.filter(({ status }) => status === 'queued'),
  }
}

export async function projectsWithQueue(db: Db): Promise<string[]> {
  const rows = await db
    .selectFrom('sessions')
    .select('project_id')
    .distinct()
    .where('status', '=', 'queued')
    .execute()
  return rows.map((row) => row.project_id)
}

export async function projectsWithProcesses(db: Db): Promise<string[]> {
  const rows = await db
    .selectFrom('sessions')
    .select('project_id')
    .distinct()
    .where('status', 'not in', [...finalStatuses, 'queued', 'preparing'])
    .where('hibernated', '=', false)
    .execute()
  return rows.map((row) => row.project_id)
}

/** Sessions that have been idle since before `before` and have a process that can be stopped. */
export async function hibernatable(db: Db, before: Date): Promise<Pick<SessionRow, 'id' | 'project_id'>[]> {
  return await db
    .selectFrom('sessions')
    .select(['id', 'project_id'])
    .where(isAtRest)
    .where('hibernated', '=', false)
    .where('idle_at', '<', before.toISOString())
    .where(sql<boolean>`not exists (select from commands where commands.session_id = sessions.id)`)
    .orderBy('idle_at')
    .limit(1000)
    .execute()
}

/** Positions in the queue of their project, starting at 1. */
export async function queuePositions(db: Db, ids: string[]): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map()
  const { rows } = await sql<{ id: string; position: number }>`
    select id, position::int from (
      select id, row_number() over (partition by project_id order by queued_at, id) as position
      from sessions where status = 'queued'
        and project_id in (select project_id from sessions where id = any(${ids}))
    ) as queue where id = any(${ids})`.execute(db)
  return new Map(rows.map(({ id, position }) => [id, position]))
}
