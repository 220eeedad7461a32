import { randomBytes } from 'node:crypto'
import { type Selectable, sql } from 'kysely'
import type { Db } from '../../open.ts'
import type { CommandsTable } from '../../schema.ts'

export type CommandRow = Selectable<CommandsTable>

/** A command without its position in the queue. */
export type Due = Omit<CommandRow, 'number' | 'created_at'>

export type NewCommand = {
  session_id: string
  project_id: string
  kind: CommandRow['kind']
  payload: Record<string, unknown>
  id?: string
}

/** For a statement that writes other rows as well. */
export const commandInsertion = (db: Db, row: Due) =>
  db.insertInto('commands').values({ ...row, payload: JSON.stringify(row.payload) })

export async function insertCommand(db: Db, row: NewCommand): Promise<string> {
  const id = row.id ?? newCommandId()
  await commandInsertion(db, { ...row, id }).execute()
  return id
}

export const newCommandId = () => `cmd_${randomBytes(10).toString('hex')}`

/** Commands of a queued session wait until it is admitted. */
const isAdmitted = sql<boolean>`not exists (select from sessions where sessions.id = commands.session_id and status = 'queued')`

export async function pendingCommands(db: Db, project_id: string): Promise<CommandRow[]> {
  return await db
    .selectFrom('commands')
    .selectAll()
    .where('project_id', '=', project_id)
    .where(isAdmitted)
    .orderBy('number')
    .execute()
}

export async function projectsWithCommands(db: Db): Promise<string[]> {
  const rows = await db.selectFrom('commands').select('project_id').distinct().where(isAdmitted).execute()
  return rows.map((row) => row.project_id)
}

/** Ids of the turns that have not been sent to the supervisor. */
export async function pendingTurns(db: Db, session_id: string): Promise<string[]> {
  const rows = await db
    .selectFrom('commands')
    .select(['kind', 'payload'])
    .where('session_id', '=', session_id)
    .where('kind', 'in', ['start', 'prompt'])
    .orderBy('number')
    .execute()
  return rows.flatMap(({ kind, payload }) => {
    const turn = (kind === 'start' ? payload.turn : payload) as { turn_id?: unknown } | undefined
    return typeof turn?.turn_id === 'string' ? [turn.turn_id] : []
  })
}

/** False if it was deleted before. */
export async function deleteCommand(db: Db, id: string): Promise<boolean> {
  const { numDeletedRows } = await db.deleteFrom('commands').where('id', '=', id).executeTakeFirst()
  return numDeletedRows > 0n
}

export async function isPending(db: Db, id: string): Promise<boolean> {
  return (await db.selectFrom('commands').select('id').where('id', '=', id).executeTakeFirst()) !== undefined
}

export async function deleteSessionCommands(db: Db, session_id: string): Promise<void> {
  await db.deleteFrom('commands').where('session_id', '=', session_id).execute()
}

export async function hasCommand(db: Db, session_id: string, kind: CommandRow['kind']): Promise<boolean> {
  const row = await db
    .selectFrom('commands')
    .select('id')
    .where('session_id', '=', session_id)
    .where('kind', '=', kind)
    .executeTakeFirst()
  return row !== undefined
}

/** Those of the given sessions that have a pending `start` command. */
export async function sessionsToStart(db: Db, session_ids: string[]): Promise<Set<string>> {
  if (session_ids.length === 0) return new Set()
  const rows = await db
    .selectFrom('commands')
    .select('session_id')
    .where('session_id', 'in', session_ids)
    .where('kind', '=', 'start')
    .execute()
  return new Set(rows.map((row) => row.session_id))
}

export type PendingCommand = Pick<CommandRow, 'id' | 'kind' | 'created_at'>

/** Oldest first, without their content. */
export async function queueOf(db: Db, session_id: string, limit: number): Promise<PendingCommand[]> {
  return await db
    .selectFrom('commands')
    .select(['id', 'kind', 'created_at'])
    .where('session_id', '=', session_id)
    .orderBy('number')
    .limit(limit)
    .execute()
}

export async function countCommands(db: Db): Promise<number> {
  const row = await db
    .selectFrom('commands')
    .select((all) => all.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow()
  return Number(row.count)
}
