// Reads the whole database as it was at one moment, while servers write to it. One repeatable-read transaction on a connection
// of its own, without statement timeouts: COPY reads each table at the pace of its consumer, and blocks nothing but changes of
// the schema. Tables come from the catalog, so that a new table is part of every snapshot.
import type { Readable } from 'node:stream'
import pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import { Fault, messageOf } from '../../fault.ts'
import type { Secret } from '../../log.ts'
import { sqlState } from '../errors.ts'
import { migrationLock } from '../migrate.ts'

export type SnapshotTable = { name: string; columns: string[]; estimated_rows: number }
export type Sequence = { name: string; last_value: string; is_called: boolean }
export type Snapshot = {
  /** Names, in order. Empty if no server has used the database. */
  migrations: string[]
  postgres_version: string
  tables: SnapshotTable[]
  sequences: Sequence[]
  /** The rows in the text format of COPY. One table at a time. */
  read(table: SnapshotTable): Readable & { rowCount: number }
  close(): Promise<void>
}

/** Derived data: the next start applies the SQL functions of its release and records them here. */
export const derivedTables: readonly string[] = ['sql_functions']

const lockSeconds = 30

/** Long operations on one connection: no deadline of the pool applies, and the format of values is fixed. */
export async function connectLong(database_url: Secret, application_name: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: database_url.reveal(),
    application_name,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
  })
  // A lost connection rejects the running query.
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query(`set statement_timeout = 0; set idle_in_transaction_session_timeout = 0;
      set lock_timeout = '${lockSeconds}s'; set client_encoding = 'UTF8'; set datestyle = 'ISO, YMD';
      set intervalstyle = 'postgres'; set timezone = 'UTC'; set extra_float_digits = 1`)
    return client
  } catch (error) {
    await client.end().catch(() => undefined)
    throw new Fault('unavailable', `cannot connect to the database: ${messageOf(error)}`, {
      hint: 'check DATABASE_URL, and that PostgreSQL is running; "./oubliette doctor" names the cause',
      cause: error,
    })
  }
}

/** Ordinary tables of the schema that the server uses; generated columns are computed again. */
export async function tablesOf(client: pg.Client): Promise<SnapshotTable[]> {
  const { rows } = await client.query<SnapshotTable>(
    `select c.relname as name, greatest(c.reltuples, 0)::float8 as estimated_rows,
       array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0
         and not a.attisdropped and a.attgenerated = '' order by a.attnum) as columns
     from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = current_schema() and c.relkind = 'r' and c.relpersistence = 'p'
       and c.relname <> all ($1) order by c.relname`,
    [derivedTables],
  )
  return rows
}

/** Not part of the transaction, and never behind it: a restored sequence skips numbers at worst. */
async function sequencesOf(client: pg.Client): Promise<Sequence[]> {
  const { rows } = await client.query<{ name: string }>(
    `select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = current_schema() and c.relkind = 'S' order by c.relname`,
  )
  const sequences: Sequence[] = []
  for (const { name } of rows) {
    const found = await client.query<Omit<Sequence, 'name'>>(
      `select last_value::text as last_value, is_called from ${pg.escapeIdentifier(name)}`,
    )
    sequences.push({ name, ...found.rows[0]! })
  }
  return sequences
}

export async function migrationsOf(client: pg.Client): Promise<string[]> {
  const { rows: found } = await client.query<{ name: string | null }>(
    `select to_regclass('kysely_migration')::text as name`,
  )
  if (!found[0]?.name) return []
  const { rows } = await client.query<{ name: string }>('select name from kysely_migration order by name')
  return rows.map(({ name }) => name)
}

export const columnList = (columns: string[]): string => columns.map(pg.escapeIdentifier).join(', ')

/** The migrations of a database, without a snapshot. */
export async function readMigrations(database_url: Secret): Promise<string[]> {
  const client = await connectLong(database_url, 'oubliette')
  try {
    return await migrationsOf(client)
  } finally {
    await client.end()
  }
}

const migrating = (cause?: unknown) =>
  new Fault('unavailable', 'the schema of the database is being changed', {
    hint: 'try again when the migration has finished',
    cause,
  })

export async function openSnapshot(database_url: Secret): Promise<Snapshot> {
  const client = await connectLong(database_url, 'oubliette backup')
  try {
    // A table that is rewritten between the snapshot and its lock would look empty. Once all tables are locked, a migration
    // waits for this transaction instead.
    const held = await client.query<{ taken: boolean }>(
      `select pg_try_advisory_lock_shared(${migrationLock}) as taken`,
    )
    if (!held.rows[0]!.taken) throw migrating()
    await client.query('begin isolation level repeatable read read only')
    const { rows } = await client.query<{ version: string }>(
      `select current_setting('server_version') as version`,
    )
    const tables = await tablesOf(client)
    for (const { name } of tables)
      await client.query(`lock table ${pg.escapeIdentifier(name)} in access share mode`)
    await client.query(`select pg_advisory_unlock_shared(${migrationLock})`)
    return {
      migrations: await migrationsOf(client),
      postgres_version: rows[0]!.version,
      tables,
      sequences: await sequencesOf(client),
      read: ({ name, columns }) =>
        client.query(copyTo(`copy ${pg.escapeIdentifier(name)} (${columnList(columns)}) to stdout`)),
      close: () => client.end(),
    }
  } catch (error) {
    await client.end().catch(() => undefined)
    throw sqlState(error) === '55P03' ? migrating(error) : error
  }
}
