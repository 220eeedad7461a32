// Backups are taken while sessions write, and a restored home answers as the original did at one moment.
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync, gzipSync } from 'node:zlib'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { connect } from '../../harness/client.ts'
import { cloneDatabase, query, type TestDatabase } from '../../harness/database.ts'
import { bootServer, type TestServer } from '../../harness/server.ts'
import { until } from '../../harness/wait.ts'

const sessions = 20

let booted: Booted
let folder: string
const targets: TestDatabase[] = []
beforeAll(async () => {
  booted = await boot({ config: { models: ['kept-in-the-config'] } })
  folder = await mkdtemp(join(tmpdir(), 'oub-backup-'))
})
afterAll(async () => {
  await booted?.stop()
  for (const target of targets) await target.drop()
  await rm(folder, { recursive: true, force: true })
})

const cli = (args: string[], env: Record<string, string> = {}) =>
  runCli(
    args,
    { OUBLIETTE_HOME: booted.server.home, DATABASE_URL: booted.server.database_url!, ...env },
    120_000,
  )

async function emptyTarget(): Promise<TestDatabase> {
  const target = await cloneDatabase({ empty: true })
  targets.push(target)
  return target
}

type Digest = { count: string; hash: string | null }
async function digestOf(url: string, table: string, where = 'true'): Promise<Digest> {
  const [row] = await query<Digest>(
    url,
    `select count(*) as count, md5(string_agg(md5(t::text), '' order by t::text)) as hash from "${table}" t where ${where}`,
  )
  return row!
}

/** Of all tables but the one that the next start fills. */
async function digests(url: string): Promise<Record<string, Digest>> {
  const tables = await query<{ name: string }>(
    url,
    `select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace
       and relname <> 'sql_functions' order by relname`,
  )
  const entries: [string, Digest][] = []
  for (const { name } of tables) entries.push([name, await digestOf(url, name)])
  return Object.fromEntries(entries)
}

async function spawnWriters(project_id: string, script: string): Promise<string[]> {
  const spawned = Array.from({ length: sessions }, () =>
    booted.ok('session', { action: 'spawn', project_id, prompt: script, new_session: true }),
  )
  return (await Promise.all(spawned)).map(({ session_id }) => session_id as string)
}

test('a backup that is taken while 20 sessions write is one moment of the database', async () => {
  const project_id = await booted.project()
  const ids = await spawnWriters(
    project_id,
    // Slow enough that lines become events of their own, and that all sessions still write during the backup.
    'i=0; until [ -e /workspaces/stop ]; do i=$((i+1)); echo line $i; sleep 0.05; done',
  )
  const counted = async () =>
    Number((await booted.query<{ n: string }>('select count(*) as n from events'))[0]!.n)
  await until(
    async () =>
      (
        await booted.query<{ n: string }>(
          `select count(distinct session_id) as n from events where index > 3`,
        )
      )[0]!.n === String(sessions),
    { what: 'all sessions write', deadline_ms: 120_000, every_ms: 200 },
  )
  const before = await counted()
  const file = join(folder, 'busy.tar.gz')
  const made = await cli(['backup', file])
  const after = await until(async () => (await counted()) > before && (await counted()), {
    what: 'events are written during and after the backup',
  })
  expect(made).toMatchObject({ code: 0, stderr: '' })
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  await booted.exec(project_id, 'touch /workspaces/stop')

  const target = await emptyTarget()
  const home = join(folder, 'busy')
  const restored = await cli(['restore', file], { OUBLIETTE_HOME: home, DATABASE_URL: target.url })
  expect(restored).toMatchObject({ code: 0, stderr: '' })
  const [torn] = await query<{ sessions: string; broken: string; total: string; position: string }>(
    target.url,
    `select count(*) as sessions, count(*) filter (where first <> 0 or last <> n - 1) as broken, sum(n) as total,
       max(position) as position from (select session_id, min(index) as first, max(index) as last, count(*) as n,
       max(position) as position from events group by session_id) as each`,
  )
  expect(torn).toMatchObject({ sessions: String(sessions), broken: '0' })
  expect(Number(torn!.total)).toBeGreaterThanOrEqual(before)
  expect(Number(torn!.total)).toBeLessThanOrEqual(after)
  // The log is committed in the order of its positions: the moment is a position, and the original has the same prefix.
  expect(await digestOf(target.url, 'events')).toEqual(
    await digestOf(booted.server.database_url!, 'events', `position <= ${torn!.position}`),
  )
  // A session and its events are committed together, so the row agrees with its last event.
  const disagree = await query(
    target.url,
    `select id from sessions where next_index <> (select count(*) from events where session_id = sessions.id)`,
  )
  expect(disagree).toEqual([])
  await Promise.all(
    ids.map((session_id) => booted.ok('session', { action: 'end', session_id, wait_seconds: 0 })),
  )
}, 240_000)

/** A backup during which no row changed: the server writes audit rows and times of last use after its answers. */
async function backUpQuiet(): Promise<{ file: string; expected: Record<string, Digest> }> {
  let number = 0
  return await until(
    async () => {
      const file = join(folder, `idle-${++number}.tar.gz`)
      const expected = await digests(booted.server.database_url!)
      expect(await cli(['backup', '--workspaces', file])).toMatchObject({ code: 0, stderr: '' })
      const after = await digests(booted.server.database_url!)
      return JSON.stringify(after) === JSON.stringify(expected) && { file, expected }
    },
    { what: 'a backup during which nothing changes', deadline_ms: 60_000, every_ms: 1_000 },
  )
}

test('a restored home has the same rows, files and answers, and its own config and keys', async () => {
  const project_id = await booted.project({ name: 'restored-project' })
  await booted.exec(project_id, 'echo kept > /workspaces/default/note; ln -s note /workspaces/default/link')
  const spawned = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt: 'echo answer',
    wait_seconds: 30,
  })
  await booted.ok('container', { action: 'stop', project_id })
  const { file, expected } = await backUpQuiet()
  const target = await emptyTarget()
  const home = join(folder, 'idle')
  const restored = await cli(['restore', '--new-instance', file], {
    OUBLIETTE_HOME: home,
    DATABASE_URL: target.url,
  })
  expect(restored).toMatchObject({ code: 0, stderr: '' })
  const found = await digests(target.url)
  expect(found.instance).not.toEqual(expected.instance)
  expect({ ...found, instance: undefined }).toEqual({ ...expected, instance: undefined })
  for (const name of ['oubliette.jsonc', 'session.secret']) {
    expect(await readFile(join(home, name))).toEqual(await readFile(join(booted.server.home, name)))
    expect((await stat(join(home, name))).mode & 0o777).toBe(0o600)
  }
  const workspace = join('projects', project_id, 'workspaces', 'default')
  expect(await readFile(join(home, workspace, 'note'), 'utf8')).toBe('kept\n')
  expect((await stat(join(home, workspace, 'note'))).uid).toBe(
    (await stat(join(booted.server.home, workspace, 'note'))).uid,
  )

  const copy: TestServer = await bootServer({
    home,
    database_url: target.url,
    env: { OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token },
  })
  try {
    const client = await connect(copy, booted.server.admin_token)
    const ask = async (of: typeof client, tool: string, args: Record<string, unknown>) =>
      (await of.call(tool, args)).structured
    const { session_id } = spawned
    for (const [tool, args] of [
      ['project', { action: 'get', project_id }],
      ['session', { action: 'get', session_id }],
      ['session', { action: 'events', session_id, since_index: -1 }],
    ] as const)
      expect(await ask(client, tool, args)).toEqual(await ask(booted.client(), tool, args))
    // New rows get new numbers: the sequences were restored.
    const again = await ask(client, 'session', {
      action: 'spawn',
      project_id,
      prompt: 'cat note link',
      wait_seconds: 60,
    })
    expect(again).toMatchObject({ final_text: expect.stringContaining('kept\nkept') })
    await client.close()
  } finally {
    await copy.stop()
  }
}, 180_000)

test('an embedded database is backed up beside its server and without it, and restored into a new home', async () => {
  const embedded = await boot({ embedded: true })
  const env = { OUBLIETTE_HOME: embedded.server.home, DATABASE_URL: '' }
  try {
    await embedded.ok('project', { action: 'create', name: 'in the embedded database', network: 'none' })
    const running = join(folder, 'embedded-running.tar.gz')
    expect(await cli(['backup', running], env)).toMatchObject({ code: 0, stderr: '' })
    await embedded.server.kill('SIGTERM')
    const stopped = join(folder, 'embedded-stopped.tar.gz')
    expect(await cli(['backup', stopped], env)).toMatchObject({ code: 0, stderr: '' })
    for (const file of [running, stopped]) {
      const home = file.replace('.tar.gz', '')
      const restored = await cli(['restore', '--new-instance', file], {
        OUBLIETTE_HOME: home,
        DATABASE_URL: '',
      })
      expect(restored).toMatchObject({ code: 0, stderr: '' })
      const copy = await bootServer({
        home,
        embedded: true,
        env: { OUBLIETTE_ADMIN_TOKEN: embedded.server.admin_token },
      })
      try {
        const client = await connect(copy, embedded.server.admin_token)
        const { structured } = await client.call('project', { action: 'list' })
        expect(JSON.stringify(structured)).toContain('in the embedded database')
        await client.close()
      } finally {
        await copy.stop()
      }
    }
  } finally {
    await embedded.stop()
  }
})

test('what cannot be restored is refused in one line, and nothing is written', async () => {
  const good = join(folder, 'good.tar.gz')
  expect(await cli(['backup', good])).toMatchObject({ code: 0 })
  const again = await cli(['backup', good])
  expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('already exists') })
  expect((await readdir(folder)).filter((name) => name.includes('partial'))).toEqual([])
  const bytes = await readFile(good)
  const plain = gunzipSync(bytes)
  const changed = (from: string, to: string) => {
    const copy = Buffer.from(plain)
    const at = copy.indexOf(from)
    expect(at).toBeGreaterThan(0)
    copy.write(to, at)
    return gzipSync(copy)
  }
  const flipped = Buffer.from(bytes)
  flipped[Math.floor(bytes.length / 2)]! ^= 0xff
  const cases: [string, Buffer, RegExp][] = [
    ['cut', bytes.subarray(0, bytes.length - 200), /is damaged or not a backup/],
    ['without its manifest', gzipSync(plain.subarray(0, plain.indexOf('manifest.json'))), /is damaged/],
    ['flipped', flipped, /is damaged or not a backup/],
    [
      'changed',
      changed('kept-in-the-config', 'kept-in-the-corfig'),
      /the checksum of home\/oubliette.jsonc is wrong/,
    ],
    ['of a newer format', changed('"format": 1', '"format": 9'), /made by a newer release/],
    [
      'of newer migrations',
      changed('"0001-foundation"', '"9001-foundation"'),
      /newer release .* 9001-foundation/,
    ],
    ['text', Buffer.from('not an archive'), /is damaged or not a backup/],
    ['empty', Buffer.alloc(0), /is damaged or not a backup/],
  ]
  const target = await emptyTarget()
  const home = join(folder, 'refused')
  for (const [name, content, message] of cases) {
    const file = join(folder, 'bad.tar.gz')
    await writeFile(file, content)
    const refused = await cli(['restore', file], { OUBLIETTE_HOME: home, DATABASE_URL: target.url })
    expect({ name, ...refused }).toMatchObject({ name, code: 1, stdout: '' })
    expect(refused.stderr.split('\n')[0]).toMatch(message)
    await expect(stat(home), name).rejects.toThrow('ENOENT')
  }
  expect(await digests(target.url)).toEqual({})
  const full = await cli(['restore', good], { DATABASE_URL: target.url })
  expect(full).toMatchObject({ code: 1, stderr: expect.stringMatching(/OUBLIETTE_HOME .* is not empty/) })
  const taken = await cli(['restore', good], { OUBLIETTE_HOME: home })
  expect(taken).toMatchObject({ code: 1, stderr: expect.stringContaining('the database is not empty') })
  await expect(stat(home)).rejects.toThrow('ENOENT')
  // The control: the same archive, home and database.
  expect(await cli(['restore', '--verify', good])).toMatchObject({ code: 0 })
  expect(await cli(['restore', good], { OUBLIETTE_HOME: home, DATABASE_URL: target.url })).toMatchObject({
    code: 0,
  })
})
