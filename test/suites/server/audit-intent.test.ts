// No change without its audit row: the intent is committed before a change is made, a change whose intent cannot be written
// is refused, and what a killed server leaves pending is settled by the next one.
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type OwnDatabase, ownDatabase } from '../../fixtures/chaos/embedded-database.ts'
import { type Booted, boot, uniqueName } from '../../harness/booted.ts'
import { seeded } from '../../harness/random.ts'
import { resultIn, rpc } from '../../harness/rpc.ts'
import { until } from '../../harness/wait.ts'

type Row = { outcome: string; milliseconds: number; reason: string | null; boot: string | null }

let booted: Booted
let database: OwnDatabase
let project_id: string

beforeAll(async () => {
  booted = await boot({ embedded: true })
  database = await ownDatabase(booted.server.home)
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterEach(() => database.resume())
afterAll(() => booted?.stop())

const rowsOf = (token_id: string, action: string) =>
  database.query<Row>(
    `select outcome, milliseconds, to_jsonb(audit) ->> 'reason' as reason, to_jsonb(audit) ->> 'boot' as boot
     from audit where token_id = $1 and action = $2 order by id`,
    [token_id, action],
  )

/** A token of its own, so that its rows are those of one call. */
async function minted(): Promise<{ token_id: string; token: string }> {
  const { token_id, token } = await booted.ok('token', {
    action: 'create',
    name: uniqueName(),
    scope: 'admin',
  })
  return { token_id, token }
}

async function call(token: string, name: string, args: object) {
  const reply = await rpc(booted.server.url, token, 'tools/call', { name, arguments: args })
  const { isError, structuredContent } = resultIn(reply)
  return { is_error: isError === true, structured: structuredContent as Record<string, never> }
}
const exec = (token: string, command: string) =>
  call(token, 'container', { action: 'exec', project_id, command })

const lines = async (file: string): Promise<string[]> =>
  String((await booted.exec(project_id, `cat ${file} 2>/dev/null; true`)).stdout)
    .split('\n')
    .filter(Boolean)

test('a change has its row while it runs, and the same row has the outcome afterwards', async () => {
  const { token, token_id } = await minted()
  const running = exec(token, 'until [ -e go ]; do sleep 0.05; done')
  const [before] = await until(
    async () => {
      const rows = await rowsOf(token_id, 'exec')
      return rows.length > 0 && rows
    },
    { what: 'the row of a command that runs' },
  )
  expect(before).toMatchObject({ outcome: 'pending', milliseconds: 0, boot: expect.any(String) })
  await booted.exec(project_id, 'touch go')
  expect((await running).is_error).toBe(false)
  const after = await until(
    async () => {
      const rows = await rowsOf(token_id, 'exec')
      return rows[0]?.outcome !== 'pending' && rows
    },
    { what: 'the row is settled' },
  )
  expect(after).toEqual([
    { outcome: 'ok', milliseconds: expect.any(Number), reason: null, boot: before!.boot },
  ])
  expect(after[0]!.milliseconds).toBeGreaterThan(0)
})

test('while the database hangs or is down, changes are refused and nothing is done', {
  timeout: 90_000,
}, async () => {
  const { token, token_id } = await minted()
  // What is needed to find the caller and the project is remembered from this one.
  expect((await exec(token, 'echo control >> proof')).is_error).toBe(false)
  const name = uniqueName()
  await database.hang()
  try {
    const began = performance.now()
    const [ran, made, minted_token] = await Promise.all([
      exec(token, 'echo hung >> proof'),
      call(token, 'project', { action: 'create', name }),
      call(token, 'token', { action: 'create', name, scope: 'admin:ro' }),
    ])
    for (const { is_error, structured } of [ran, made, minted_token]) {
      expect(is_error).toBe(true)
      expect(structured.error).toMatchObject({
        kind: 'unavailable',
        message: expect.stringMatching(/the change was not made: its audit record .*database/),
      })
    }
    expect(performance.now() - began).toBeLessThan(13_000)
  } finally {
    await database.resume()
  }
  await until(async () => !(await exec(token, 'echo again >> proof')).is_error, {
    deadline_ms: 20_000,
    what: 'changes are possible again',
  })
  expect([...new Set(await lines('proof'))]).toEqual(['control', 'again'])
  expect((await booted.ok('project', { action: 'list', name_contains: name })).projects).toEqual([])
  const { tokens } = await booted.ok('token', { action: 'list', limit: 100 })
  expect(tokens.filter((one: { name: string }) => one.name === name)).toEqual([])
  // The refused ones are in the audit as such, whether or not their intent was written when the database went on.
  const outcomes = await until(
    async () => {
      const rows = await rowsOf(token_id, 'create')
      return rows.length === 2 && rows.every(({ outcome }) => outcome !== 'pending') && rows
    },
    { what: 'the refused changes are settled' },
  )
  expect(outcomes.map(({ outcome }) => outcome)).toEqual(['unavailable', 'unavailable'])
})

test('a change whose database is killed while it runs is settled when the database is back', {
  timeout: 60_000,
}, async () => {
  const { token, token_id } = await minted()
  const running = exec(token, 'until [ -e on ]; do sleep 0.05; done; echo ran >> survived')
  await until(async () => (await rowsOf(token_id, 'exec')).length === 1, { what: 'its intent is there' })
  await database.kill()
  await until(async () => !(await exec(booted.server.admin_token, 'touch on')).is_error, {
    deadline_ms: 30_000,
    what: 'the database is back',
  })
  expect((await running).is_error).toBe(false)
  const rows = await until(
    async () => {
      const found = await rowsOf(token_id, 'exec')
      return found[0]?.outcome !== 'pending' && found
    },
    { what: 'the row is settled' },
  )
  expect(rows).toMatchObject([{ outcome: 'ok' }])
  expect(await lines('survived')).toEqual(['ran'])
})

test('what a killed server leaves pending is settled as unknown by the next one', {
  timeout: 60_000,
}, async () => {
  const { token, token_id } = await minted()
  const running = exec(token, 'sleep 300').catch(() => undefined)
  await until(async () => (await rowsOf(token_id, 'exec')).length === 1, { what: 'its intent is there' })
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
  await running
  expect(await rowsOf(token_id, 'exec')).toMatchObject([
    { outcome: 'unknown', reason: 'the server ended before the outcome was recorded' },
  ])
})

test('however server and database are killed, no change is without its row', {
  timeout: 120_000,
}, async () => {
  const random = seeded('kills of server and database')
  const calls = new Set<string>()
  const rounds = 5
  const each = 8
  const tokens = []
  for (let n = 0; n < rounds * each; n++) tokens.push(await minted())
  for (let round = 0; round < rounds; round++) {
    let answered = 0
    const now = tokens.slice(round * each, (round + 1) * each)
    const asked = now.map(async ({ token, token_id }, n) => {
      calls.add(token_id)
      // Calls are spread, so that a kill finds them at different stages.
      await sleep(random.below(60))
      const command = `echo ${token_id} >> changes`
      const changed =
        n % 2 === 0
          ? exec(token, command)
          : call(token, 'session', { action: 'spawn', project_id, prompt: command, new_session: true })
      await changed.catch(() => undefined)
      answered += 1
    })
    // After some of the answers, so that there are changes on a slow machine too.
    const enough = random.below(each)
    await until(() => answered >= enough, { every_ms: 1, what: 'some calls are answered' })
    await sleep(random.below(30))
    // The database alone every other time: then the server has to notice by itself.
    if (round % 2 === 1) await database.kill()
    await Promise.all([...asked, booted.server.restart('SIGKILL')])
    await booted.reconnect()
  }
  const made = await until(async () => await lines('changes'), {
    deadline_ms: 20_000,
    what: 'the container answers',
  })
  expect(made.length).toBeGreaterThan(0)
  const rows = await database.query<{ token_id: string; outcome: string }>(
    `select token_id, outcome from audit where action in ('exec', 'spawn') and token_id = any ($1)`,
    [[...calls]],
  )
  const known = new Map(rows.map(({ token_id, outcome }) => [token_id, outcome]))
  expect(made.filter((token_id) => !known.has(token_id))).toEqual([])
  // A row that says that nothing was done must not be about something that was.
  expect(made.filter((token_id) => !['ok', 'unknown'].includes(known.get(token_id)!))).toEqual([])
  expect(rows.length).toBe(known.size)
  console.log(`${calls.size} calls, ${made.length} changes, ${rows.length} rows, without a row: 0`)
})

// The database lies on a file system of its own, which is filled; that takes root.
test.skipIf(process.getuid?.() !== 0)(
  'with the disk of the database full, a change is refused or has its row',
  { timeout: 90_000 },
  async () => {
    const home = await mkdtemp(join(tmpdir(), 'oub-full-'))
    const disk = join(home, 'postgres')
    await mkdir(disk)
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=160m', 'tmpfs', disk])
    const full = await boot({ embedded: true, home })
    try {
      const own = await ownDatabase(home)
      const project = await full.project()
      await full.ok('container', { action: 'start', project_id: project })
      const tokens: { token_id: string; token: string }[] = []
      for (let n = 0; n < 120; n++) {
        const { token_id, token } = await full.ok('token', {
          action: 'create',
          name: `t${n}`,
          scope: 'admin',
        })
        tokens.push({ token_id, token })
      }
      const change = async ({ token, token_id }: { token: string; token_id: string }) => {
        const args = {
          action: 'exec',
          project_id: project,
          command: ['sh', '-c', `echo ${token_id} >> changes`],
        }
        const reply = await rpc(full.server.url, token, 'tools/call', { name: 'container', arguments: args })
        return resultIn(reply)
      }
      expect((await change(tokens[0]!)).isError).toBe(false)
      // It ends when nothing fits any more.
      spawnSync('dd', ['if=/dev/zero', `of=${join(disk, 'filler')}`, 'bs=64k'])
      const refused: string[] = []
      for (const one of tokens.slice(1)) {
        const { isError, structuredContent } = await change(one)
        if (!isError) continue
        expect(structuredContent).toMatchObject({ error: { kind: 'unavailable' } })
        refused.push(one.token_id)
      }
      await rm(join(disk, 'filler'))
      await until(async () => (await change(tokens[0]!)).isError === false, {
        deadline_ms: 20_000,
        what: 'changes are possible again',
      })
      const made = String((await full.exec(project, 'cat changes')).stdout)
        .split('\n')
        .filter(Boolean)
      const rows = await own.query<{ token_id: string }>(`select token_id from audit where action = 'exec'`)
      const known = new Set(rows.map(({ token_id }) => token_id))
      expect(refused.length).toBeGreaterThan(0)
      expect(made.length).toBeGreaterThan(1)
      expect(made.filter((token_id) => refused.includes(token_id) || !known.has(token_id))).toEqual([])
    } finally {
      await full.stop()
      spawnSync('umount', ['-l', disk])
      await rm(home, { recursive: true, force: true })
    }
  },
)
