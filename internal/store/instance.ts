import { randomBytes } from 'node:crypto'
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
