// Tokens and cost by hour, session and model.
import { sql } from 'kysely'
import type { Db } from '../open.ts'

export type UsageRow = {
  hour: string
  project_id: string
  session_id: string
  /** '' if unknown. */
  model: string
  token_id: string | null
  input_tokens: number
  output_tokens: number
  cost_usd: number
}

/** In the transaction that changes the totals of the sessions. Each key must occur once. */
export async function addUsage(trx: Db, rows: UsageRow[]): Promise<void> {
  if (rows.length === 0) return
  await trx
    .insertInto('usage')
    .values(rows)
    .onConflict((conflict) =>
      conflict.columns(['session_id', 'hour', 'model']).doUpdateSet({
        input_tokens: sql`usage.input_tokens + excluded.input_tokens`,
        output_tokens: sql`usage.output_tokens + excluded.output_tokens`,
        cost_usd: sql`usage.cost_usd + excluded.cost_usd`,
      }),
    )
    .execute()
}

export const usageGroups = ['project', 'session', 'model', 'day', 'token'] as const
export type UsageGroup = (typeof usageGroups)[number]
export type UsageFilter = { project_id?: string; since?: string; group_by: UsageGroup; limit: number }
export type GroupedUsage = {
  key: string | null
  name: string | null
  sessions: number
  input_tokens: number
  output_tokens: number
  cost_usd: number
}

const keys = {
  project: sql`project_id::text`,
  session: sql`session_id`,
  model: sql`nullif(model, '')`,
  day: sql`to_char(hour at time zone 'UTC', 'YYYY-MM-DD')`,
  token: sql`token_id`,
} as const satisfies Record<UsageGroup, unknown>

const noName = sql`null::text`
const names = {
  project: sql`(select name from projects where id::text = key)`,
  session: sql`(select droid from sessions where id = key)`,
  model: noName,
  day: noName,
  token: sql`(select name from tokens where id = key)`,
} as const satisfies Record<UsageGroup, unknown>

const sums = sql`count(distinct session_id)::int as sessions, coalesce(sum(input_tokens), 0)::bigint as input_tokens,
  coalesce(sum(output_tokens), 0)::bigint as output_tokens, coalesce(sum(cost_usd), 0)::float8 as cost_usd`

const matching = ({ project_id, since }: UsageFilter) => sql`
  where ${project_id === undefined ? sql`true` : sql`project_id = ${project_id}::uuid`}
    and ${since === undefined ? sql`true` : sql`hour >= date_trunc('hour', ${since}::timestamptz, 'UTC')`}`

/** Days newest first, other groups by cost. */
export async function groupUsage(db: Db, filter: UsageFilter): Promise<GroupedUsage[]> {
  const { group_by, limit } = filter
  const order =
    group_by === 'day' ? sql`key desc` : sql`cost_usd desc, input_tokens + output_tokens desc, key`
  const { rows } = await sql<GroupedUsage>`
    select key, ${names[group_by]} as name, sessions, input_tokens, output_tokens, cost_usd
    from (select * from (select ${keys[group_by]} as key, ${sums} from usage ${matching(filter)} group by 1) grouped
      order by ${order} limit ${limit}) largest
    order by ${order}`.execute(db)
  return rows
}

export async function totalUsage(db: Db, filter: UsageFilter): Promise<Omit<GroupedUsage, 'key' | 'name'>> {
  const { rows } = await sql<Omit<GroupedUsage, 'key' | 'name'>>`
    select ${sums} from usage ${matching(filter)}`.execute(db)
  return rows[0]!
}

/** Per statement, which has a deadline; the next sweep deletes more. */
const deletedAtOnce = 20_000

export async function deleteUsageBefore(db: Db, at: Date): Promise<void> {
  await sql`
    delete from usage where ctid = any (array(
      select ctid from usage where hour < ${at.toISOString()}::timestamptz limit ${deletedAtOnce}))`.execute(
    db,
  )
}
