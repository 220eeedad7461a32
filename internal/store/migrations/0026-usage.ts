// Tokens and cost by hour, session and model. Rows outlive their session and their project, because deleting those does not
// make them free; the server deletes rows by age. There are no foreign keys: checking them would lock rows in the opposite
// order to the transactions that record usage.
import { type Kysely, sql } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table usage (
      hour timestamptz not null,
      project_id uuid not null,
      session_id text not null,
      model text not null,
      token_id text,
      input_tokens bigint not null,
      output_tokens bigint not null,
      cost_usd double precision not null,
      primary key (session_id, hour, model)
    )`.execute(db)
  await sql`create index usage_project on usage (project_id, hour)`.execute(db)
  await sql`create index usage_hour on usage (hour)`.execute(db)
  // Of earlier usage only the totals of sessions are known: it counts for the hour in which the session was created.
  await sql`
    insert into usage (hour, project_id, session_id, model, token_id, input_tokens, output_tokens, cost_usd)
    select date_trunc('hour', created_at, 'UTC'), project_id, id, coalesce(model, ''), token_id, input_tokens, output_tokens,
      cost_usd
    from sessions where input_tokens > 0 or output_tokens > 0 or cost_usd > 0`.execute(db)
}
