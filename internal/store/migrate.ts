// Brings the database to the schema of this release: migrations, which run once each, and the SQL functions and triggers in
// `functions/*.sql`, which are applied again whenever the content of their file changes. Both run in one transaction.
// Servers that start at the same time wait for each other on an advisory lock. A database of a newer release is not
// changed.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import { type Migration, Migrator } from 'kysely/migration'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { up as foundation } from './migrations/0001-foundation.ts'
import { up as sessions } from './migrations/0002-sessions.ts'
import { up as callers } from './migrations/0003-callers.ts'
import { up as schedules } from './migrations/0004-schedules.ts'
import { up as callerCalls } from './migrations/0005-caller-calls.ts'
import { up as suspects } from './migrations/0006-suspects.ts'
import { up as authority } from './migrations/0007-authority.ts'
import { up as spending } from './migrations/0008-spending.ts'
import { up as workspaceState } from './migrations/0009-workspace-state.ts'
import { up as quotas } from './migrations/0010-quotas.ts'
import { up as execs } from './migrations/0011-execs.ts'
import { up as auditIntents } from './migrations/0012-audit-intents.ts'
import { up as memory } from './migrations/0013-memory.ts'
import { up as mcpSessions } from './migrations/0015-mcp-sessions.ts'
import { up as sqlFunctions } from './migrations/0016-sql-functions.ts'
import { up as callerRequestAudit } from './migrations/0017-caller-request-audit.ts'
import { up as preparing } from './migrations/0018-preparing.ts'
import { up as upstreams } from './migrations/0020-upstreams.ts'
import { up as upstreamSearch } from './migrations/0021-upstream-search.ts'
import { up as upstreamConsents } from './migrations/0022-upstream-consents.ts'
import { up as approvalInbox } from './migrations/0024-approval-inbox.ts'
import { up as usage } from './migrations/0026-usage.ts'
import type { Db } from './open.ts'

/**
 * In order. A released migration is never edited: a change is a new migration. Functions and triggers are not created here;
 * those in migrations up to 0010 are earlier versions of the ones in `functions/`.
 */
export const migrations: Record<string, Migration> = {
  '0001-foundation': { up: foundation },
  '0002-sessions': { up: sessions },
  '0003-callers': { up: callers },
  '0004-schedules': { up: schedules },
  '0005-caller-calls': { up: callerCalls },
  '0006-suspects': { up: suspects },
  '0007-authority': { up: authority },
  '0008-spending': { up: spending },
  '0009-workspace-state': { up: workspaceState },
  '0010-quotas': { up: quotas },
  '0011-execs': { up: execs },
  '0012-audit-intents': { up: auditIntents },
  '0013-memory': { up: memory },
  '0015-mcp-sessions': { up: mcpSessions },
  '0016-sql-functions': { up: sqlFunctions },
  '0017-caller-request-audit': { up: callerRequestAudit },
  '0018-preparing': { up: preparing },
  '0020-upstreams': { up: upstreams },
  '0021-upstream-search': { up: upstreamSearch },
  '0022-upstream-consents': { up: upstreamConsents },
  '0024-approval-inbox': { up: approvalInbox },
  '0026-usage': { up: usage },
}

/** Any number that nothing else in the same database uses. */
export const migrationLock = 7_305_112_098_113n
const table = 'kysely_migration'

/** The text of each file, by file name. Every file must be safe to run again, and its result must not depend on the others. */
export type FunctionFiles = Record<string, string>
type Schema = { migrations: Record<string, Migration>; functions: FunctionFiles }

export function readFunctions(): FunctionFiles {
  const directory = join(import.meta.dirname, 'functions')
  const files = readdirSync(directory).filter((file) => file.endsWith('.sql'))
  return Object.fromEntries(files.map((file) => [file, readFileSync(join(directory, file), 'utf8')]))
}

async function refuseNewer(db: Db, known: Record<string, Migration>): Promise<void> {
  const exists = await sql<{ name: string | null }>`select to_regclass(${table})::text as name`.execute(db)
  if (!exists.rows[0]?.name) return
  const done = await sql<{ name: string }>`select name from ${sql.table(table)} order by name`.execute(db)
  const unknown = done.rows.map((row) => row.name).filter((name) => !Object.hasOwn(known, name))
  if (unknown.length > 0)
    throw new Fault('conflict', `the database belongs to a newer release: it has ${unknown.join(', ')}`, {
      hint: 'start that release, or restore a backup from before the upgrade',
    })
}

const failure = (what: string, cause: unknown) =>
  new Fault('internal', `failed to migrate the database (${what})`, {
    hint: 'the database was not changed; see the cause in the log',
    cause,
  })

async function applyMigrations(trx: Db, known: Record<string, Migration>): Promise<string[]> {
  const migrator = new Migrator({ db: trx, provider: { getMigrations: async () => known } })
  const { error, results = [] } = await migrator.migrateToLatest()
  if (error !== undefined)
    throw failure(results.find(({ status }) => status === 'Error')?.migrationName ?? 'migrations', error)
  return results.map(({ migrationName }) => migrationName)
}

async function applyFunctions(trx: Db, functions: FunctionFiles): Promise<string[]> {
  const files = Object.keys(functions).sort()
  if (files.length === 0) return []
  const hashes = new Map(
    files.map((file) => [file, createHash('sha256').update(functions[file]!).digest('hex')]),
  )
  const rows = await trx.selectFrom('sql_functions').select(['file', 'hash']).execute()
  const applied = new Map(rows.map(({ file, hash }) => [file, hash]))
  // A file that comes back later is applied again.
  const gone = rows.map(({ file }) => file).filter((file) => !hashes.has(file))
  if (gone.length > 0) await trx.deleteFrom('sql_functions').where('file', 'in', gone).execute()
  const changed = files.filter((file) => applied.get(file) !== hashes.get(file))
  // A trigger cannot be dropped while a migration of this transaction has left events for it.
  if (changed.length > 0) await sql`set constraints all immediate`.execute(trx)
  for (const file of changed) {
    const hash = hashes.get(file)!
    try {
      await sql.raw(functions[file]!).execute(trx)
    } catch (error) {
      throw failure(file, error)
    }
    await trx
      .insertInto('sql_functions')
      .values({ file, hash })
      .onConflict((on) => on.column('file').doUpdateSet({ hash, applied_at: sql`now()` }))
      .execute()
  }
  return changed
}

async function run(connection: Db, schema: Schema, log: Log): Promise<void> {
  await refuseNewer(connection, schema.migrations)
  const done = await connection.transaction().execute(async (trx) => ({
    migrations: await applyMigrations(trx, schema.migrations),
    functions: await applyFunctions(trx, schema.functions),
  }))
  for (const migration of done.migrations) log.info('migrated the database', { migration })
  for (const file of done.functions) log.info('updated SQL functions', { file })
}

export async function migrate(db: Db, log: Log, given: Partial<Schema> = {}): Promise<void> {
  const schema = { migrations, functions: readFunctions(), ...given }
  await db.connection().execute(async (connection) => {
    // Neither waiting for the migration of another server nor a long migration is an error.
    await sql`set statement_timeout = 0`.execute(connection)
    await sql`set lock_timeout = 0`.execute(connection)
    await sql`select pg_advisory_lock(${migrationLock})`.execute(connection)
    try {
      await run(connection, schema, log)
    } finally {
      await sql`select pg_advisory_unlock(${migrationLock})`.execute(connection)
      await sql`reset statement_timeout`.execute(connection)
      await sql`reset lock_timeout`.execute(connection)
    }
  })
}
