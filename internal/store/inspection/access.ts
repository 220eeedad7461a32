// The account of read-only queries: a login role that owns nothing and can read the views of `visible.ts`. A separate login,
// because a role that is only set can be reset by the statement itself. Everything a statement could change or hold by
// calling a function (advisory locks, notifications, settings, sleeping) is a volatile function, so volatile functions are
// taken from PUBLIC in this database. That needs a superuser; without one the queries stay off.
import { createHash, randomBytes } from 'node:crypto'
import { sql } from 'kysely'
import { Secret } from '../../log.ts'
import { readRolePrefix } from '../embedded/cluster.ts'
import type { Db, Store } from '../open.ts'
import { visibleTables } from './visible.ts'

const schemaName = 'diagnostics'
const connections = 8
const timeoutMs = 5000

/** Volatile functions whose only effect is their result. */
const harmless = [
  'random',
  'random_normal',
  'gen_random_uuid',
  'uuidv4',
  'uuidv7',
  'clock_timestamp',
  'timeofday',
]

export type Access = { role: string; password: Secret } | { refused: string }

/** Roles are shared by all databases of a server, so the name contains the instance. */
const roleOf = (instance: string): string =>
  `${readRolePrefix}${createHash('sha256').update(instance).digest('hex').slice(0, 16)}`

type Rights = { is_superuser: boolean; may_create_roles: boolean; name: string }

async function rightsOf(db: Db): Promise<Rights> {
  const { rows } =
    await sql<Rights>`select rolsuper as is_superuser, rolsuper or rolcreaterole as may_create_roles,
    current_user as name from pg_roles where rolname = current_user`.execute(db)
  return rows[0]!
}

async function saveRole(db: Db, role: string, password: Secret): Promise<void> {
  const { rows } = await sql`select 1 from pg_roles where rolname = ${role}`.execute(db)
  if (rows.length === 0) await sql`create role ${sql.id(role)}`.execute(db)
  await sql`alter role ${sql.id(role)} login noinherit nosuperuser nocreatedb nocreaterole noreplication nobypassrls
    connection limit ${sql.lit(connections)} password ${sql.lit(password.reveal())}`.execute(db)
  const settings = {
    default_transaction_read_only: 'on',
    statement_timeout: String(timeoutMs),
    lock_timeout: '1000',
    idle_in_transaction_session_timeout: '10000',
    temp_file_limit: '512MB',
    max_parallel_workers_per_gather: '0',
    search_path: schemaName,
  }
  for (const [name, value] of Object.entries(settings))
    await sql`alter role ${sql.id(role)} set ${sql.raw(name)} = ${sql.lit(value)}`.execute(db)
}

/** Only what PUBLIC still has: after the first start of a release there is nothing left to do. */
async function closeFunctions(db: Db): Promise<void> {
  await sql
    .raw(`do $$ declare it record; begin
      for it in select p.oid::regprocedure as signature from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where (n.nspname = 'pg_catalog' and p.provolatile = 'v' and p.prorettype <> 'trigger'::regtype
            and p.proname <> all (array[${harmless.map((name) => `'${name}'`).join(', ')}]))
          or n.nspname = 'public'
      loop
        if has_function_privilege('public', it.signature::oid, 'execute') then
          execute format('revoke execute on routine %s from public', it.signature);
        end if;
      end loop;
    end $$`)
    .execute(db)
  await sql`revoke usage on language plpgsql from public`.execute(db)
}

async function createViews(db: Db, role: string): Promise<void> {
  await sql`drop schema if exists ${sql.id(schemaName)} cascade`.execute(db)
  await sql`create schema ${sql.id(schemaName)}`.execute(db)
  const { rows } = await sql<{ table_name: string; column_name: string }>`select table_name, column_name
    from information_schema.columns where table_schema = 'public' order by table_name, ordinal_position`.execute(
    db,
  )
  for (const [table, hidden] of Object.entries(visibleTables)) {
    const columns = rows.filter((it) => it.table_name === table && !hidden.includes(it.column_name))
    if (columns.length === 0) continue
    const list = sql.join(columns.map(({ column_name }) => sql.id(column_name)))
    // A barrier: no condition of the query is evaluated before the view has decided what is visible.
    await sql`create view ${sql.id(schemaName, table)} with (security_barrier) as
      select ${list} from ${sql.id('public', table)}`.execute(db)
  }
  await sql`grant usage on schema ${sql.id(schemaName)} to ${sql.id(role)}`.execute(db)
  await sql`grant select on all tables in schema ${sql.id(schemaName)} to ${sql.id(role)}`.execute(db)
}

/** The views are made anew at every start, so that they follow the migrations. */
export async function prepareAccess(store: Store, instance: string): Promise<Access> {
  const role = roleOf(instance)
  const password = new Secret(randomBytes(24).toString('base64url'))
  const { is_superuser, name } = await rightsOf(store.db)
  if (!is_superuser)
    return {
      refused: `the database user "${name}" is not a superuser and cannot restrict what read-only queries call`,
    }
  await store.transact(
    async (trx) => {
      await saveRole(trx, role, password)
      await closeFunctions(trx)
      await createViews(trx, role)
    },
    { long: true },
  )
  // An embedded PostgreSQL that an earlier release started has not read the rule for this role.
  await sql`select pg_reload_conf()`.execute(store.db)
  return { role, password }
}
