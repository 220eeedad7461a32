// Model spending of projects: the rules for requests to models, and the reservations of running requests. Every request to a
// model needs both, so each is one prepared statement.
import { sql } from 'kysely'
import type { Db } from '../open.ts'
import type { ModelReservationsTable } from '../schema.ts'
import { prepared } from './prepared.ts'

export type ModelRules = { network: 'none' | 'internal' | 'open'; credential_refs: string[] }

const rules = prepared<ModelRules, [project_id: string]>('project_model_rules', (db) =>
  sql<ModelRules>`
    select network, credential_refs from projects where id = ${''} and deleting_at is null`.compile(db),
)

export async function projectModelRules(db: Db, project_id: string): Promise<ModelRules | undefined> {
  return (await rules(db, project_id))[0]
}

export type NewReservation = Pick<
  ModelReservationsTable,
  'id' | 'project_id' | 'session_id' | 'provider' | 'model' | 'amount_usd' | 'home' | 'process'
>
/** The owner of reservations. */
export type Holder = Pick<ModelReservationsTable, 'home' | 'process'>
export type Admission = { admitted: boolean; spent_usd: number; reserved_usd: number; limit_usd: number }

const reserve = prepared<
  Admission,
  [string, string, string, string, string, number, number, string, string, number]
>('reserve_model_cost', (db) =>
  sql<Admission>`
    select * from reserve_model_cost(${''}::uuid, ${''}::uuid, ${''}, ${''}, ${''}, ${0}::float8, ${0}::float8,
      ${''}, ${''}, ${0}::float8)`.compile(db),
)

/** Undefined if the project does not exist. */
export async function reserveModelCost(
  db: Db,
  { id, project_id, session_id, provider, model, amount_usd, home, process }: NewReservation,
  default_limit_usd: number,
  lease_seconds: number,
): Promise<Admission | undefined> {
  const values = [id, project_id, session_id, provider, model] as const
  return (await reserve(db, ...values, amount_usd, default_limit_usd, home, process, lease_seconds))[0]
}

/** False if it was already charged or released. */
export async function deleteReservation(db: Db, id: string): Promise<boolean> {
  const row = await db
    .deleteFrom('model_reservations')
    .where('id', '=', id)
    .returning('id')
    .executeTakeFirst()
  return row !== undefined
}

export async function renewReservations(db: Db, ids: string[], lease_seconds: number): Promise<void> {
  await sql`
    update model_reservations set lease_until = now() + make_interval(secs => ${lease_seconds}::float8)
    where id = any (${ids}::uuid[])`.execute(db)
}

export type DeadReservation = Pick<
  ModelReservationsTable,
  'id' | 'project_id' | 'session_id' | 'provider' | 'model' | 'amount_usd'
>

/** Reservations of an earlier process of this home, and those whose lease has expired. */
export async function deadReservations(db: Db, { home, process }: Holder): Promise<DeadReservation[]> {
  const { rows } = await sql<DeadReservation>`
    select id, project_id, session_id, provider, model, amount_usd from model_reservations
    where (home = ${home} and process <> ${process}) or lease_until < now()
    order by created_at limit 1000`.execute(db)
  return rows
}

/** For a deleted session, which has no event log. Does nothing if the project is deleted too. */
export async function addCost(db: Db, project_id: string, usd: number): Promise<void> {
  await sql`
    insert into project_costs (project_id, usd)
    select project_id, ${usd}::float8 from project_spending where project_id = ${project_id}`.execute(db)
}
