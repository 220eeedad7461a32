import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { sql } from 'kysely'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { homeHolder, lockHome } from '../../../internal/home-lock.ts'
import { createLog, Secret } from '../../../internal/log.ts'
import { type Embedded, startEmbedded, stopEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { migrate, migrations, readFunctions } from '../../../internal/store/migrate.ts'
import { openStore } from '../../../internal/store/open.ts'
import { administer, cloneDatabase } from '../../harness/database.ts'
import { until } from '../../harness/wait.ts'

const log = createLog({ level: 'error' })
const holder = resolve(import.meta.dirname, './home-holder.ts')
const isRoot = process.getuid?.() === 0

let home: string
let closers: (() => unknown)[]

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'oub-store-'))
  closers = []
})
afterEach(async () => {
  for (const close of closers.reverse()) await close()
  await stopEmbedded(home)
  await rm(home, { recursive: true, force: true })
})

async function hold(what: 'lock' | 'postgres'): Promise<{ child: ChildProcess; said: string }> {
  const child = spawn(process.execPath, [holder, what, home], { stdio: ['ignore', 'pipe', 'inherit'] })
  closers.push(() => child.kill('SIGKILL'))
  for await (const said of createInterface({ input: child.stdout })) return { child, said }
  throw new Error('the holder ended')
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

async function query<Row extends pg.QueryResultRow>(url: Secret, text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url.reveal() })
  await client.connect()
  try {
    return (await client.query<Row>(text)).rows
  } finally {
    await client.end()
  }
}

async function start(): Promise<Embedded> {
  const embedded = await startEmbedded({ home, log })
  closers.push(() => embedded.stop())
  return embedded
}

describe('the embedded PostgreSQL', () => {
  test('is durable, listens on a socket only and keeps its data over a stop and a start', async () => {
    const first = await start()
    const settings = await query<{ name: string; setting: string }>(
      first.url,
      `select name, setting from pg_settings where name in
       ('fsync', 'synchronous_commit', 'full_page_writes', 'listen_addresses', 'data_checksums') order by name`,
    )
    expect(settings.map(({ name, setting }) => `${name}=${setting}`)).toEqual([
      ...[
        'data_checksums=on',
        'fsync=on',
        'full_page_writes=on',
        'listen_addresses=',
        'synchronous_commit=on',
      ],
    ])
    await query(first.url, 'create table kept as select 42 as answer')
    await first.stop()
    const second = await start()
    expect(second.reused).toBe(false)
    expect(await query(second.url, 'select answer from kept')).toEqual([{ answer: 42 }])
  })

  test('goes on when the daemon is killed, and the next daemon uses the same process', async () => {
    const { child, said } = await hold('postgres')
    await kill(child)
    const next = await start()
    expect(next.reused).toBe(true)
    expect(said).toBe(`holding ${next.pid()}`)
    expect(await query(next.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  test('does not get the signals of the daemon’s terminal', async () => {
    const embedded = await start()
    const group = execFileSync('ps', ['-o', 'pgid=', '-p', String(embedded.pid())])
      .toString()
      .trim()
    expect(Number(group)).toBe(embedded.pid())
  })

  test('is started again when it crashes under the daemon, with everything that was committed', async () => {
    const embedded = await start()
    const before = embedded.pid()
    await query(embedded.url, 'create table kept as select 7 as answer')
    process.kill(before, 'SIGKILL')
    await until(() => embedded.pid() !== before, { deadline_ms: 20_000, what: 'another postmaster' })
    expect(await query(embedded.url, 'select answer from kept')).toEqual([{ answer: 7 }])
  })

  test('starts although the pid in a stale pid file belongs to another process by now', async () => {
    const first = await start()
    const file = join(home, 'postgres/data/postmaster.pid')
    const text = await readFile(file, 'utf8')
    await first.stop()
    const other = spawn('sleep', ['600'], isRoot ? await ownerOf(join(home, 'postgres')) : {})
    closers.push(() => other.kill('SIGKILL'))
    await writeFile(file, text.replace(/^\d+/, String(other.pid)))
    expect((await start()).reused).toBe(false)
  })

  test('initialises its data again when the first initialisation was interrupted', async () => {
    await mkdir(join(home, 'postgres/data.new-dead/base'), { recursive: true })
    await start()
    await expect(stat(join(home, 'postgres/data.new-dead'))).rejects.toThrow('ENOENT')
  })

  test('refuses connections without the password, and no other user reaches the socket or reads the password', async () => {
    const { url } = await start()
    const wrong = new Secret(url.reveal().replace(/:[0-9a-f]{64}@/, ':wrong@'))
    await expect(query(wrong, 'select 1')).rejects.toThrow('password authentication failed')
    expect((await stat(join(home, 'postgres'))).mode & 0o777).toBe(0o700)
    expect((await stat(join(home, 'postgres/password'))).mode & 0o777).toBe(0o600)
  })

  test.runIf(isRoot)('runs as another user inside a directory that only root can enter', async () => {
    await chmod(home, 0o700)
    const embedded = await start()
    const { uid } = await stat(`/proc/${embedded.pid()}`)
    expect(uid).not.toBe(0)
    expect((await stat(home)).uid).toBe(0)
    expect(await query(embedded.url, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  test('says in one line that the home is too long for a socket', async () => {
    const long = join(home, 'x'.repeat(100))
    await expect(startEmbedded({ home: long, log })).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(long),
    })
  })
})

async function ownerOf(path: string): Promise<{ uid: number; gid: number }> {
  const { uid, gid } = await stat(path)
  return { uid, gid }
}

describe('the lock of a home', () => {
  test('refuses a second daemon, naming the home and the first one’s pid', async () => {
    const { child } = await hold('lock')
    expect(() => lockHome(home)).toThrow(`another server (pid ${child.pid}) is running on ${home}`)
    expect(homeHolder(home)).toMatchObject({ pid: child.pid })
  })

  test('of a killed daemon is free at once', async () => {
    const { child } = await hold('lock')
    await kill(child)
    expect(homeHolder(home)).toBeUndefined()
    const lock = lockHome(home)
    expect(homeHolder(home)).toMatchObject({ pid: process.pid })
    lock.release()
    expect(homeHolder(home)).toBeUndefined()
  })

  test('goes to exactly one of many that want it at once, after a daemon was killed', async () => {
    const { child } = await hold('lock')
    await kill(child)
    const rivals = Array.from({ length: 6 }, () => {
      const rival = spawn(process.execPath, [holder, 'lock', home], { stdio: ['ignore', 'pipe', 'ignore'] })
      closers.push(() => rival.kill('SIGKILL'))
      return Promise.race([
        once(rival.stdout, 'data').then(() => 'held'),
        once(rival, 'exit').then(() => 'refused'),
      ])
    })
    const outcomes = await Promise.all(rivals)
    expect(outcomes.filter((outcome) => outcome === 'held')).toHaveLength(1)
  })
})

describe('the store', () => {
  async function open(url: string) {
    const store = await openStore({ database_url: new Secret(url), log })
    closers.push(() => store.close())
    return store
  }

  async function clone(options?: { empty: boolean }) {
    const database = await cloneDatabase(options)
    closers.push(() => database.drop())
    return database
  }

  test('migrates once when four servers start on an empty database at the same moment', async () => {
    const { url } = await clone({ empty: true })
    let runs = 0
    const counted = {
      ...migrations,
      '9999-counted': {
        up: async () => {
          runs++
        },
      },
    }
    const stores = await Promise.all([1, 2, 3, 4].map(() => open(url)))
    await Promise.all(stores.map((store) => migrate(store.db, log, { migrations: counted })))
    expect(runs).toBe(1)
  })

  test('makes what sessions of an older release minted theirs, and revokes what outlived them', async () => {
    const { url } = await clone({ empty: true })
    const { db } = await open(url)
    const before = Object.fromEntries(Object.entries(migrations).filter(([name]) => name < '0007-authority'))
    await migrate(db, log, { migrations: before, functions: {} })
    const project_id = '11111111-1111-4111-8111-111111111111'
    await sql`insert into projects (id, name, description, container_type, init_git, workspace_isolation, protected_paths,
        network, limits, disabled_tools, mcp_servers, credential_refs, created_by)
      values (${project_id}, 'p', '', 'base', true, false, '[]', 'none', '{}', '[]', '[]', '[]', 'tok_a')`.execute(
      db,
    )
    for (const [id, status] of [
      ['gogol_living', 'running'],
      ['gogol_over', 'completed'],
    ]) {
      await sql`insert into sessions (id, project_id, workspace_id, droid, autonomy_level, tools_allowed, tools_disallowed,
          status, requires, root_session_id, depth, created_by, token_id, key_hash, key_generation, next_index, created_at, updated_at)
        values (${id}, ${project_id}, 'default', 'shell', 'high', '[]', '[]', ${status}, '[]', ${id}, 0, 'tok_a', 'tok_a',
          ${Buffer.from(id!)}, 1, 0, now(), now())`.execute(db)
      await sql`insert into schedules (id, name, cron_expr, time_zone, prompt, enabled, overlap_behavior, session_behavior,
          catch_up, scope, created_by, next_run_at, created_at, updated_at)
        values (${`sch_${id}`}, 's', '@daily', 'UTC', 'true', true, 'skip', 'new', 'skip', 'admin', ${id}, now(), now(), now())`.execute(
        db,
      )
    }
    for (const by of ['gogol_living', 'gogol_over', 'gogol_gone', 'tok_a'])
      await sql`insert into tokens (id, name, scope, hash, created_by)
        values (${`of ${by}`}, 't', 'admin', ${Buffer.from(by)}, ${by})`.execute(db)
    await migrate(db, log)
    const tokens = await db.selectFrom('tokens').selectAll().orderBy('id').execute()
    const shown = tokens.map((row) => [
      row.id,
      row.parent_session_id,
      row.parent_token_id,
      row.revoked_at !== null,
    ])
    expect(shown).toEqual([
      ['of gogol_gone', 'gogol_gone', null, true],
      ['of gogol_living', 'gogol_living', 'tok_a', false],
      ['of gogol_over', 'gogol_over', 'tok_a', true],
      ['of tok_a', null, null, false],
    ])
    const schedules = await db.selectFrom('schedules').selectAll().orderBy('id').execute()
    expect(schedules.map((row) => [row.session_id, row.enabled, row.next_run_at !== null])).toEqual([
      ['gogol_living', true, true],
      ['gogol_over', false, false],
    ])
    // And from now on it ends with them.
    await sql`update sessions set status = 'failed' where id = 'gogol_living'`.execute(db)
    const living = db.selectFrom('tokens').select('id').where('revoked_at', 'is', null)
    expect(await living.execute()).toEqual([{ id: 'of tok_a' }])
  })

  /** Functions and triggers as the database holds them, without those of extensions. */
  const definitions = async (url: string) =>
    (
      await query<{ text: string }>(
        new Secret(url),
        `select pg_get_functiondef(oid) as text from pg_proc where pronamespace = 'public'::regnamespace
          and not exists (select 1 from pg_depend where objid = pg_proc.oid and deptype = 'e')
        union all select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal order by text`,
      )
    ).map(({ text }) => text)

  test('has the same functions and triggers in an upgraded database as in a fresh one, all of them from files', async () => {
    const { url } = await clone({ empty: true })
    const { db } = await open(url)
    const older = Object.fromEntries(
      Object.entries(migrations).filter(([name]) => name < '0016-sql-functions'),
    )
    await migrate(db, log, { migrations: older, functions: {} })
    const before = await definitions(url)
    await migrate(db, log)
    const after = await definitions(url)
    expect(after).toEqual(await definitions((await clone()).url))
    expect(after).not.toEqual(before)
    const text = Object.values(readFunctions()).join('\n')
    const names = after.map((one) => /(?:FUNCTION public\.|TRIGGER )(\w+)/.exec(one)![1]!)
    expect(names.length).toBeGreaterThan(10)
    for (const name of names)
      expect(text).toMatch(new RegExp(`create (or replace )?(constraint )?(function|trigger) ${name}\\b`))
  })

  test('replaces functions whose file has changed at the next start, and runs no file that has not', async () => {
    const { url } = await clone()
    const stores = await Promise.all([open(url), open(url)])
    const [{ db }] = stores
    const answer = async () => (await sql<{ n: number }>`select answer() as n`.execute(db)).rows[0]!.n
    const runs = async () => (await sql<{ n: number }>`select n from runs`.execute(db)).rows[0]!.n
    await sql`create table runs as select 0 as n`.execute(db)
    const file = (n: number) =>
      `create or replace function answer() returns int language sql as 'select ${n}'; update runs set n = n + 1;`
    const start = (functions: Record<string, string>) =>
      Promise.all(
        stores.map((store) => migrate(store.db, log, { functions: { ...readFunctions(), ...functions } })),
      )
    const times = () =>
      db.selectFrom('sql_functions').select(['file', 'applied_at']).orderBy('file').execute()
    const shipped = await times()
    expect(shipped.map((row) => row.file)).toEqual(Object.keys(readFunctions()).sort())
    await start({ 'zz.sql': file(1) })
    expect([await answer(), await runs()]).toEqual([1, 1])
    await start({ 'zz.sql': file(1) })
    expect(await runs()).toBe(1)
    await start({ 'zz.sql': file(2) })
    expect([await answer(), await runs()]).toEqual([2, 2])
    // A file that is gone is forgotten, and applied again when it comes back.
    await start({})
    expect(await times()).toEqual(shipped)
    await start({ 'zz.sql': file(2) })
    expect(await runs()).toBe(3)
  })

  test('changes nothing when a file of functions fails, and names the file', async () => {
    const { url } = await clone({ empty: true })
    const { db } = await open(url)
    const functions = { ...readFunctions(), 'zz.sql': 'create function broken() returns int as' }
    await expect(migrate(db, log, { functions })).rejects.toMatchObject({
      kind: 'internal',
      message: 'failed to migrate the database (zz.sql)',
    })
    expect((await sql`select to_regclass('sessions') as name`.execute(db)).rows).toEqual([{ name: null }])
    await migrate(db, log)
    expect(await definitions(url)).toEqual(await definitions((await clone()).url))
  })

  test('refuses the database of a newer release', async () => {
    const { url } = await clone()
    const store = await open(url)
    await sql`insert into kysely_migration values ('9999-future', now()::text)`.execute(store.db)
    await expect(migrate(store.db, log)).rejects.toMatchObject({
      kind: 'conflict',
      message: expect.stringContaining('9999-future'),
    })
  })

  test('names the place and the reason when the database cannot be used, never the password', async () => {
    const attempt = (url: string) => openStore({ database_url: new Secret(url), log })
    await expect(attempt('postgresql://me:hush@127.0.0.1:1/x')).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(/127\.0\.0\.1:1: .*ECONNREFUSED/),
    })
    for (const bad of [
      'mysql://me:hush@h/x',
      'postgresql://me:hush@[h/x',
      'postgresql://me:hush@127.0.0.1:1/x',
    ])
      await expect(attempt(bad)).rejects.toSatisfy(
        (fault: Error) => !JSON.stringify(fault.message).includes('hush'),
      )
  })

  test('gives big numbers as numbers, times as ISO text with microseconds, JSON as values', async () => {
    const store = await open((await clone()).url)
    const one =
      await sql`select 9007199254740991::int8 as big, count(*) as counted, '{"a":[1]}'::jsonb as json,
      '2026-01-02 03:04:05.678901+00'::timestamptz as at`.execute(store.db)
    expect(one.rows).toEqual([
      { big: 9007199254740991, counted: 1, json: { a: [1] }, at: '2026-01-02T03:04:05.678901Z' },
    ])
  })

  test('turns broken rules, NUL characters and lost connections into kinds', async () => {
    const store = await open((await clone()).url)
    await sql`create table parent (id int primary key)`.execute(store.db)
    await sql`create table child (id int references parent)`.execute(store.db)
    await sql`insert into parent values (1)`.execute(store.db)
    await sql`insert into child values (1)`.execute(store.db)
    const kind = (run: Promise<unknown>, expected: string) =>
      expect(run).rejects.toMatchObject({ kind: expected })
    await kind(sql`insert into parent values (1)`.execute(store.db), 'conflict')
    await kind(sql`insert into child values (2)`.execute(store.db), 'not_found')
    await kind(sql`delete from parent`.execute(store.db), 'conflict')
    await kind(sql`select ${'a\0b'}::text`.execute(store.db), 'invalid')
    await kind(sql`select ${'"\\u0000"'}::jsonb`.execute(store.db), 'invalid')
    await kind(sql`select pg_terminate_backend(pg_backend_pid())`.execute(store.db), 'unavailable')
    await store.ping()
  })

  test('runs a transaction again when another one got in its way', async () => {
    const store = await open((await clone()).url)
    await sql`create table counter as select 0 as n`.execute(store.db)
    const add = () =>
      store.transact(
        async (trx) => {
          const { rows } = await sql<{ n: number }>`select n from counter`.execute(trx)
          await sql`update counter set n = ${rows[0]!.n + 1}`.execute(trx)
        },
        { isolation: 'serializable' },
      )
    await Promise.all([add(), add(), add()])
    expect((await sql`select n from counter`.execute(store.db)).rows).toEqual([{ n: 3 }])
  })

  test('gives up a statement at its deadline, and lets a long transaction go on', async () => {
    const { url } = await clone()
    const store = await openStore({ database_url: new Secret(url), log, timeout_seconds: 1 })
    closers.push(() => store.close())
    const nap = (db: typeof store.db) => sql`select pg_sleep(2.5)`.execute(db)
    const began = performance.now()
    await expect(nap(store.db)).rejects.toMatchObject({ kind: 'timeout' })
    await expect(store.transact(nap)).rejects.toMatchObject({ kind: 'timeout' })
    expect(performance.now() - began).toBeLessThan(4_000)
    await store.transact(nap, { long: true })
    expect(performance.now() - began).toBeGreaterThan(3_500)
  })

  test('receives notifications, and reports the gap when its connection was cut', async () => {
    const { url } = await clone()
    const store = await open(url)
    const heard: string[] = []
    let gaps = 0
    const stop = await store.listen(
      'news',
      (payload) => heard.push(payload),
      () => gaps++,
    )
    await store.notify('news', 'one')
    await until(() => heard.includes('one'), { what: 'the first notification' })
    await administer(
      url,
      `select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'oubliette-listen' and datname = current_database()`,
    )
    await until(() => gaps === 1, { what: 'the gap' })
    await store.notify('news', 'two')
    await until(() => heard.includes('two'), { what: 'the second notification' })
    await stop()
    await store.notify('news', 'three')
    await store.ping()
    expect(heard).toEqual(['one', 'two'])
  })
})
