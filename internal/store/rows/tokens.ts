import { type Insertable, type Selectable, sql } from 'kysely'
import type { Db } from '../open.ts'
import type { TokensTable } from '../schema.ts'
import { type Page, type PageRequest, readCursor, toPage } from './page.ts'

export type TokenRow = Selectable<TokensTable>

export async function insertToken(db: Db, row: Insertable<TokensTable>): Promise<void> {
  await db.insertInto('tokens').values(row).execute()
}

export async function tokenByHash(db: Db, hash: Buffer): Promise<TokenRow | undefined> {
  return await db.selectFrom('tokens').selectAll().where('hash', '=', hash).executeTakeFirst()
}

export async function listTokens(db: Db, page: PageRequest): Promise<Page<TokenRow>> {
  const from = readCursor(page.cursor)
  let query = db
    .selectFrom('tokens')
    .selectAll()
    .orderBy('created_at')
    .orderBy('id')
    .limit(page.limit + 1)
  if (from) query = query.where(sql<boolean>`(created_at, id) > (${from.at}::timestamptz, ${from.id})`)
  return toPage(await query.execute(), page.limit, (row) => ({ at: row.created_at, id: row.id }))
}

/** Locks the token against being revoked until the transaction ends. False if it is missing, revoked or expired. */
export async function holdToken(trx: Db, id: string): Promise<boolean> {
  const row = await trx
    .selectFrom('tokens')
    .select('id')
    .where('id', '=', id)
    .where('revoked_at', 'is', null)
    .where((eb) => eb.or([eb('expires_at', 'is', null), eb('expires_at', '>', sql<string>`now()`)]))
    .forShare()
    .executeTakeFirst()
  return row !== undefined
}

/** All tokens that were created through these sessions. */
export async function revokeMinted(trx: Db, session_ids: string[]): Promise<void> {
  if (session_ids.length === 0) return
  await trx
    .updateTable('tokens')
    .set({ revoked_at: sql<string>`now()` })
    .where('parent_session_id', 'in', session_ids)
    .where('revoked_at', 'is', null)
    .execute()
}

/** Returns the updated token. The time of the first revocation is kept. */
export async function revokeToken(db: Db, id: string): Promise<TokenRow | undefined> {
  return await db
    .updateTable('tokens')
    .set({ revoked_at: sql<string>`coalesce(revoked_at, now())` })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirst()
}

export async function saveLastUsed(db: Db, ids: string[]): Promise<void> {
  await db
    .updateTable('tokens')
    .set({ last_used_at: new Date().toISOString() })
    .where('id', 'in', ids)
    .execute()
}

/** Those of the given tokens that are revoked or do not exist. */
export async function endedAmong(db: Db, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return []
  const { rows } = await sql<{ id: string }>`
    select id from unnest(${ids}::text[]) as given (id)
    where not exists (select from tokens where tokens.id = given.id and revoked_at is null)`.execute(db)
  return rows.map(({ id }) => id)
}
