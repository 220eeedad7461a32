// Statements that a read-only query must not be able to execute, on the embedded PostgreSQL and on one that was given. None
// changes anything, sees a secret, holds a lock that the server needs, or runs longer than its timeout.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'

const harmless: [string, unknown[][]][] = [
  ['select 1', [[1]]],
  ["select 'DROP TABLE tokens'", [['DROP TABLE tokens']]],
  ['select 1;', [[1]]],
  ['select 1 -- comment', [[1]]],
  ['values (1), (2)', [[1], [2]]],
  ['with x as (select 2 as y) select y from x', [[2]]],
  ["select 'a;b'", [['a;b']]],
  ['table instance limit 0', []],
  ["select count(*) > 0 from tokens where scope = 'admin'", [[true]]],
  ['select random() < 2', [[true]]],
  ['show transaction_read_only', [['on']]],
  ["select '9007199254740993'::bigint", [['9007199254740993']]],
  ['select null, true, 1.5::float8', [[null, true, 1.5]]],
  ['select \'{"a": [1]}\'::jsonb', [[{ a: [1] }]]],
]

const hostile: string[] = [
  // Changes.
  'insert into tokens (id) values (1)',
  "update projects set name = 'x'",
  'delete from events',
  'truncate events',
  'drop table public.events',
  'drop schema diagnostics cascade',
  'create table mine (a int)',
  'create temp table mine (a int)',
  'create view public.mine as select 1',
  "create function f() returns int language sql as 'select 1'",
  'alter table public.tokens add column x int',
  'alter role current_user superuser',
  'create role mine',
  'grant all on public.tokens to public',
  'reassign owned by current_user to current_user',
  'with gone as (delete from public.events returning 1) select * from gone',
  "with made as (insert into public.suspects (key) values ('x') returning 1) select * from made",
  'with changed as (update public.projects set name = name returning 1) select * from changed',
  'select * into mine from tokens',
  'create table mine as select 1',
  'merge into public.projects using (select 1) as x on false when not matched then do nothing',
  'explain analyze delete from public.events',
  'explain analyze create table mine as select 1',
  'refresh materialized view mine',
  'vacuum',
  'analyze',
  'checkpoint',
  'reindex database postgres',
  'comment on table public.tokens is $$x$$',
  // More than one statement, and leaving the transaction.
  'select 1; select 2',
  'select 1; drop table public.events',
  'commit',
  'rollback; drop table public.events',
  'begin',
  'set transaction read write',
  "select set_config('transaction_read_only', 'off', false)",
  "select set_config('default_transaction_read_only', 'off', false)",
  "select set_config('statement_timeout', '0', false)",
  "select set_config('role', 'postgres', false)",
  "select set_config('session_authorization', 'postgres', false)",
  'set role postgres',
  'set session authorization postgres',
  'reset role; select * from public.tokens',
  'set statement_timeout = 0',
  // Secrets.
  'select hash from tokens',
  'select key_hash from sessions',
  'select * from public.tokens',
  'select t.hash from public.tokens t',
  'select * from pg_authid',
  'select * from pg_shadow',
  'select * from pg_hba_file_rules',
  "select query_to_xml('select * from public.tokens', true, true, '')",
  "select table_to_xml('public.tokens', true, true, '')",
  "select * from ts_stat('select hash::text::tsvector from public.tokens')",
  // Files, programs, other servers.
  "copy (select 1) to '/tmp/oubliette-copy'",
  "copy (select 1) to program 'id'",
  'copy tokens to stdout',
  'copy (select 1) to stdout',
  "select pg_read_file('/etc/passwd')",
  "select pg_read_binary_file('postgresql.conf')",
  "select pg_ls_dir('.')",
  "select pg_stat_file('postgresql.conf')",
  "select lo_import('/etc/passwd')",
  "select lo_from_bytea(0, 'x')",
  'select lo_create(0)',
  "load 'auto_explain'",
  'create extension dblink',
  // Locks, waiting, signals, notifications.
  'select pg_sleep(60)',
  "select pg_sleep_for('1 minute')",
  'select pg_advisory_lock(1)',
  'select pg_advisory_xact_lock(1)',
  'select pg_try_advisory_lock(1)',
  'select pg_advisory_unlock_all()',
  'lock table public.events in access exclusive mode',
  'lock table events in access exclusive mode',
  'select * from events for update',
  'select pg_terminate_backend(pid) from pg_stat_activity',
  'select pg_cancel_backend(pid) from pg_stat_activity',
  "select pg_notify('oubliette', 'x')",
  "notify oubliette, 'x'",
  'listen oubliette',
  "select pg_logical_emit_message(false, 'x', 'y')",
  'select pg_switch_wal()',
  'select pg_reload_conf()',
  'select pg_stat_reset()',
  "select nextval('public.audit_id_seq')",
  "select setval('public.audit_id_seq', 1)",
  'prepare mine as select 1',
  'declare mine cursor with hold for select 1',
  'do $$ begin perform pg_sleep(60); end $$',
  'do $$ begin delete from public.events; end $$',
  'call public.x()',
  'discard all',
]

const expensive: string[] = [
  'select count(*) from generate_series(1, 100000000000)',
  'with recursive x(n) as (select 1 union all select n + 1 from x) select max(n) from x',
  "select repeat('a', 60) || 'b' ~ '^(a+)+$' from generate_series(1, 100000000)",
  "select repeat('x', 100000000)",
  "select repeat('x', 100000) from generate_series(1, 1000)",
  'select a from generate_series(1, 1000000000) a order by a desc',
]

describe.each([
  ['embedded', { embedded: true }],
  ['external', {}],
])('on the %s database', (_, options) => {
  let booted: Booted
  let before: string
  beforeAll(async () => {
    booted = await boot(options)
    await booted.project()
    // The first query makes the role and the views.
    await booted.ok('diagnostics', { action: 'db_query', query: 'select 1' })
    before = await fingerprint()
  })
  afterAll(() => booted?.stop())

  const ask = (query: string, more = {}) => booted.ok('diagnostics', { action: 'db_query', query, ...more })
  const refused = (query: string) => booted.fault('diagnostics', { action: 'db_query', query })

  /** Of everything that a statement could have changed. */
  async function fingerprint(): Promise<string> {
    const { rows } = await ask(
      `select (select count(*) from tokens), (select count(*) from projects), (select string_agg(name, ',') from projects),
        (select count(*) from pg_class where relkind in ('r', 'v', 'm', 'S')), (select count(*) from pg_proc),
        (select count(*) from pg_roles where rolname not like 'oub%'), (select count(*) from pg_namespace where nspname not like 'pg_%'),
        (select count(*) from pg_largeobject_metadata), (select rolsuper from pg_roles where rolname = current_user)`,
    )
    return JSON.stringify(rows)
  }

  test.each(harmless)('is answered: %s', async (query, rows) => {
    expect((await ask(query)).rows).toEqual(rows)
  })

  test.each(hostile)('is refused: %s', async (query) => {
    const began = performance.now()
    const { kind } = await refused(query)
    expect(['invalid', 'forbidden']).toContain(kind)
    expect(performance.now() - began).toBeLessThan(6000)
  })

  test('nothing has changed after all of them, and no connection is left', async () => {
    expect(await fingerprint()).toBe(before)
    const { rows } = await ask(
      'select count(*) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()',
    )
    expect(rows).toEqual([['0']])
  })

  test.each(expensive)('ends within its bounds: %s', async (query) => {
    const began = performance.now()
    const { kind } = await refused(query)
    expect(['timeout', 'exhausted', 'invalid']).toContain(kind)
    expect(performance.now() - began).toBeLessThan(12_000)
  })

  test('rows are limited, parameters are values, and a wrong statement is explained', async () => {
    const { rows, truncated } = await ask('select * from generate_series(1, 100000)', { limit: 1000 })
    expect([rows.length, truncated]).toEqual([1000, true])
    expect(await ask('select $1::text, $2::int + 1', { params: ["'; drop table x", 41] })).toMatchObject({
      rows: [["'; drop table x", 42]],
      truncated: false,
    })
    expect(await refused('select nonsense from sessions')).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('nonsense'),
    })
  })

  test('many at once are limited, and the server answers others meanwhile', async () => {
    const slow = 'select count(*) from generate_series(1, 100000) a, generate_series(1, 1000000) b'
    const all = Array.from({ length: 12 }, () => refused(slow))
    const began = performance.now()
    await booted.ok('project', { action: 'list' })
    expect(performance.now() - began).toBeLessThan(3000)
    const kinds = (await Promise.all(all)).map(({ kind }) => kind)
    expect(kinds.filter((kind) => kind === 'exhausted').length).toBe(8)
    expect(kinds.filter((kind) => kind === 'timeout').length).toBe(4)
  })
})
