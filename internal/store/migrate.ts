// Brings the schema to what this release needs. Servers that start together wait for each other on an advisory lock; a
// database of a newer release is left alone.
import { sql } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { migrations as ours } from './migrations/index.ts'
import type { Db } from './open.ts'

/** Any number that nothing else in the same database uses. */
const lock = 7_305_112_098_113n
const table = 'kysely_migration'

async function refuseNewer(db: Db, known: Record<string, Migration>): Promise<void> {
  const exists = await sql<{ name: string | null }>`select to_regclass(${table})::text as name`.execute(db)
  if (!exists.rows[0]?.name) return
  const done = await sql<{ name: string }>`select name from ${sql.table(table)} order by name`.execute(db)
  const unknown = done.rows.map((row) => row.name).filter((name) => !Object.hasOwn(known, name))
  if (unknown.length > 0)
    throw new Fault('conflict', `the database is of a newer release: it has ${unknown.join(', ')}`, {
      hint: 'start that release, or restore a backup from before it',
    })
}

async function run(db: Db, known: Record<string, Migration>, log: Log): Promise<void> {
  await refuseNewer(db, known)
  const migrator = new Migrator({ db, provider: { getMigrations: async () => known } })
  const { error, results = [] } = await migrator.migrateToLatest()
  for (const { migrationName, status } of results)
    if (status === 'Success') log.info('migrated the database', { migration: migrationName })
  if (error === undefined) return
  const failed = results.find(({ status }) => status === 'Error')?.migrationName
  throw new Fault('internal', `the database could not be migrated${failed ? ` (${failed})` : ''}`, {
    hint: 'nothing was changed; the cause is in the log',
    cause: error,
  })
}

export async function migrate(db: Db, log: Log, known: Record<string, Migration> = ours): Promise<void> {
  await db.connection().execute(async (connection) => {
    // Waiting for another server's migration, or a long one of our own, is no fault.
    await sql`set statement_timeout = 0`.execute(connection)
    await sql`set lock_timeout = 0`.execute(connection)
    await sql`select pg_advisory_lock(${lock})`.execute(connection)
    try {
      await run(connection, known, log)
    } finally {
      await sql`select pg_advisory_unlock(${lock})`.execute(connection)
      await sql`reset statement_timeout`.execute(connection)
      await sql`reset lock_timeout`.execute(connection)
    }
  })
}
