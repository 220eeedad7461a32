// The sessions that have not ended, with their last event.
import { sql } from 'kysely'
import { finalStatuses } from '../../../protocol/session-status.ts'
import type { Db } from '../../open.ts'
import type { SessionRow } from './sessions.ts'

export type LivingSession = Pick<
  SessionRow,
  | 'id'
  | 'project_id'
  | 'workspace_id'
  | 'parent_session_id'
  | 'root_session_id'
  | 'depth'
  | 'droid'
  | 'model'
  | 'status'
  | 'hibernated'
  | 'turns'
  | 'input_tokens'
  | 'output_tokens'
  | 'cost_usd'
  | 'created_at'
> & { last_index: number | null; last_type: string | null; last_at: string | null }

/** Oldest trees first, parents before their children. */
export async function livingSessions(
  db: Db,
  { project_id, limit }: { project_id?: string | undefined; limit: number },
): Promise<LivingSession[]> {
  const { rows } = await sql<LivingSession>`
    select s.id, s.project_id, s.workspace_id, s.parent_session_id, s.root_session_id, s.depth, s.droid, s.model, s.status,
      s.hibernated, s.turns, s.input_tokens, s.output_tokens, s.cost_usd, s.created_at,
      e.index as last_index, e.type as last_type, e.at as last_at
    from (
      select * from sessions
      where ended_at is null and status not in (${sql.join(finalStatuses)})
        and ${project_id === undefined ? sql`true` : sql`project_id = ${project_id}`}
      order by root_session_id, depth, created_at limit ${limit}) s
    left join events e on e.session_id = s.id and e.index = s.next_index - 1
    order by s.created_at, s.id`.execute(db)
  return rows
}
