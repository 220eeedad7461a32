// Fills an empty database with the tables of a snapshot. The schema is migrated to exactly the migrations of the snapshot; a
// newer server migrates further when it starts. The rows are loaded in one transaction. Foreign keys are dropped and created
// again afterwards, which checks them and needs no superuser, and triggers are off, because their effects are rows of the
// snapshot. An error leaves an empty database.
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { Fault, messageOf } from '../../fault.ts'
import type { Log, Secret } from '../../log.ts'
import { migrations as known, migrate } from '../migrate.ts'
import { openStore } from '../open.ts'
import { columnList, connectLong, type Sequence, type SnapshotTable, tablesOf } from './snapshot.ts'

export type Load = {
  /** Returns the number of rows. */
  table(name: string, columns: string[], rows: Readable): Promise<number>
  /** A new id separates this database from the one that the snapshot was taken of: both can use one engine. */
  renewInstance(id: string): Promise<void>
  commit(sequences: Sequence[]): Promise<void>
  /** Leaves the database as empty as it was. Does nothing after `commit`. */
  abandon(): Promise<void>
}

const migrationSeconds = 3_600

/** The names that this release does not have. */
export const unknownMigrations = (names: string[]): string[] =>
  names.filter((name) => !Object.hasOwn(known, name))

/** The migrations that this release would apply to a database with these. */
export const pendingMigrations = (names: string[]): string[] =>
  Object.keys(known).filter((name) => !names.includes(name))

/** Throws `conflict` unless the schema has no tables. */
export async function requireEmptyDatabase(database_url: Secret): Promise<void> {
  const client = await connectLong(database_url, 'oubliette restore')
  try {
    const { rows } = await client.query<{ count: number }>(
      `select count(*)::int as count from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where n.nspname = current_schema() and c.relkind in ('r', 'p', 'v', 'm', 'S')`,
    )
    const count = rows[0]!.count
    if (count > 0)
      throw new Fault('conflict', `the database is not empty: it has ${count} tables, views and sequences`, {
        hint: 'create an empty database, and set DATABASE_URL to it',
      })
  } finally {
    await client.end()
  }
}

type Key = { table: string; name: string; definition: string }

async function foreignKeys(client: pg.Client): Promise<Key[]> {
  const { rows } = await client.query<Key>(
    `select r.relname as table, c.conname as name, pg_get_constraintdef(c.oid) as definition
     from pg_constraint c join pg_class r on r.oid = c.conrelid join pg_namespace n on n.oid = r.relnamespace
     where c.contype = 'f' and n.nspname = current_schema() order by r.relname, c.conname`,
  )
  return rows
}

async function createSchema(database_url: Secret, names: string[], log: Log): Promise<void> {
  const store = await openStore({
    database_url,
    log,
    max_connections: 2,
    timeout_seconds: migrationSeconds,
  })
  const recorded = Object.fromEntries(names.map((name) => [name, known[name]!]))
  // Without the functions of this release: they may need tables of later migrations.
  await migrate(store.db, log, { migrations: recorded, functions: {} }).finally(() => store.close())
}

async function dropAll(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ schema: string }>('select current_schema() as schema')
  const schema = pg.escapeIdentifier(rows[0]!.schema)
  const { rows: tables } = await client.query<{ name: string }>(
    `select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = current_schema() and c.relkind in ('r', 'p')`,
  )
  for (const { name } of tables)
    await client.query(`drop table if exists ${schema}.${pg.escapeIdentifier(name)} cascade`)
  const { rows: functions } = await client.query<{ signature: string }>(
    `select p.oid::regprocedure::text as signature from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = current_schema() and not exists (
       select 1 from pg_depend d where d.objid = p.oid and d.deptype = 'e')`,
  )
  for (const { signature } of functions) await client.query(`drop function if exists ${signature} cascade`)
}

/** `names` are the migrations of the snapshot. The caller has checked that the database is empty. */
export async function openLoad(database_url: Secret, names: string[], log: Log): Promise<Load> {
  const client = await connectLong(database_url, 'oubliette restore')
  let open = true
  const abandon = async () => {
    if (!open) return
    open = false
    try {
      await client.query('rollback')
      await dropAll(client)
    } finally {
      await client.end()
    }
  }
  let keys: Key[]
  let tables: SnapshotTable[]
  try {
    await createSchema(database_url, names, log)
    await client.query('begin')
    tables = await tablesOf(client)
    keys = await foreignKeys(client)
    for (const { table, name } of keys)
      await client.query(
        `alter table ${pg.escapeIdentifier(table)} drop constraint ${pg.escapeIdentifier(name)}`,
      )
    // Migrations insert rows of their own.
    await client.query(`truncate ${columnList(tables.map(({ name }) => name))}`)
    for (const { name } of tables)
      await client.query(`alter table ${pg.escapeIdentifier(name)} disable trigger user`)
  } catch (error) {
    await abandon().catch(() => undefined)
    throw error
  }

  return {
    async table(name, columns, rows) {
      const there = tables.find((table) => table.name === name)
      if (!there || columns.some((column) => !there.columns.includes(column)))
        throw new Fault('invalid', `the backup has the table "${name}", which its migrations do not create`, {
          hint: 'the database that it was made of has tables or columns of another program',
        })
      const copy = client.query(
        copyFrom(`copy ${pg.escapeIdentifier(name)} (${columnList(columns)}) from stdin`),
      )
      try {
        await pipeline(rows, copy)
      } catch (error) {
        throw new Fault('invalid', `cannot load the table "${name}": ${messageOf(error)}`, { cause: error })
      }
      return copy.rowCount
    },
    async renewInstance(id) {
      await client.query('update instance set id = $1', [id])
    },
    async commit(sequences) {
      for (const { name, last_value, is_called } of sequences)
        await client.query('select setval($1::regclass, $2::bigint, $3)', [
          pg.escapeIdentifier(name),
          last_value,
          is_called,
        ])
      for (const { table, name, definition } of keys)
        await client.query(
          `alter table ${pg.escapeIdentifier(table)} add constraint ${pg.escapeIdentifier(name)} ${definition}`,
        )
      for (const { name } of tables)
        await client.query(`alter table ${pg.escapeIdentifier(name)} enable trigger user`)
      await client.query('commit')
      open = false
      // The planner knows nothing of the rows yet.
      await client.query('analyze').catch(() => undefined)
      await client.end()
    },
    abandon,
  }
}
