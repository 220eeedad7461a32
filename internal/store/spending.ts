// What a request to a model has to know of its project, in one statement: it stands between every droid and its model.
import { sql } from 'kysely'
import type { Limits } from '../config.ts'
import type { Db } from './open.ts'
import { prepared } from './prepared.ts'

export type Spending = { limits: Partial<Limits>; credential_refs: string[]; cost_usd: number }

const spending = prepared<Spending, [project_id: string]>('project_spending', (db) =>
  sql<Spending>`
    select limits, credential_refs, coalesce(
      (select sum(cost_usd) from sessions where sessions.project_id = projects.id), 0)::float8 as cost_usd
    from projects where id = ${''} and deleting_at is null`.compile(db),
)

export async function projectSpending(db: Db, project_id: string): Promise<Spending | undefined> {
  return (await spending(db, project_id))[0]
}
