import { randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import type { Db } from './open.ts'

/** Who owns what carries our labels in Docker. It belongs to the database: servers that share one are one instance. */
export async function instanceId(db: Db): Promise<string> {
  await db
    .insertInto('instance')
    .values({ id: randomBytes(6).toString('hex') })
    .onConflict((conflict) => conflict.column('singleton').doNothing())
    .execute()
  const { id } = await db.selectFrom('instance').select('id').executeTakeFirstOrThrow()
  return id
}

/** As it is, without making one; undefined in a database that no server has used yet. */
export async function knownInstance(db: Db): Promise<string | undefined> {
  const table = await sql<{ name: string | null }>`select to_regclass('instance')::text as name`.execute(db)
  if (!table.rows[0]?.name) return undefined
  return (await db.selectFrom('instance').select('id').executeTakeFirst())?.id
}
