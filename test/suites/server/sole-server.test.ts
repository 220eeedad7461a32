// A database has one server. A second one is refused before it touches anything, and takes over at once when the first
// is gone.
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot, instanceOf } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { bootServer } from '../../harness/server.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let home: string
beforeAll(async () => {
  booted = await boot()
  home = await mkdtemp(join(tmpdir(), 'oub-'))
})
afterAll(async () => {
  await booted?.stop()
  await rm(home, { recursive: true, force: true })
})

const holders = () =>
  booted.query<{ pid: number }>(
    `select pid from pg_stat_activity where application_name like 'oubliette server %' and datname = current_database()`,
  )

test('a second server is refused with a line that names the first, whose session goes on', async () => {
  const project_id = await booted.project()
  const { session_id } = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt: 'until [ -e stop ]; do sleep 0.05; done; echo went on',
  })
  const second = await runCli(['serve'], {
    OUBLIETTE_HOME: home,
    OUBLIETTE_ADDRESS: '127.0.0.1:0',
    DATABASE_URL: booted.server.database_url!,
  })
  expect(second.code).toBe(1)
  const told = second.stderr.split('\n').filter((line) => line.startsWith('oubliette: '))
  expect(told).toEqual([
    expect.stringMatching(new RegExp(`another server uses this database \\(.*:${booted.server.pid()}\\)`)),
  ])
  expect(await readdir(home)).not.toContain('instance-id')
  expect(await readdir(home)).not.toContain('projects')
  await booted.exec(project_id, 'touch stop')
  const { final_text } = await until(
    async () => {
      const session = await booted.ok('session', { action: 'get', session_id })
      return session.status === 'idle' && session
    },
    { what: 'the session ends its turn' },
  )
  expect(final_text).toContain('went on')
})

test('the lock is taken again when its connection is lost', async () => {
  const [before] = await holders()
  await booted.query('select pg_terminate_backend($1)', [before!.pid])
  const after = await until(async () => (await holders()).find(({ pid }) => pid !== before!.pid), {
    deadline_ms: 20_000,
    what: 'another connection holds the lock',
  })
  expect(after).toBeDefined()
  expect((await fetch(`${booted.server.url}/readyz`)).status).toBe(200)
})

test('a server that is cut off from the database stops when another has taken it over', async () => {
  const instance = await instanceOf(booted.server)
  process.kill(booted.server.pid(), 'SIGSTOP')
  const [before] = await holders()
  await booted.query('select pg_terminate_backend($1)', [before!.pid])
  const other = await bootServer({ home, database_url: booted.server.database_url! })
  try {
    expect(await instanceOf(other)).toBe(instance)
    process.kill(booted.server.pid(), 'SIGCONT')
    await until(() => /another server uses this database/.test(booted.server.log()), {
      deadline_ms: 30_000,
      what: 'the first server notices',
    })
    const answers = () =>
      fetch(`${booted.server.url}/healthz`).then(
        () => true,
        () => false,
      )
    await until(async () => !(await answers()), { deadline_ms: 30_000, what: 'the first server has stopped' })
  } finally {
    await other.kill('SIGKILL')
  }
  await booted.server.restart()
  expect((await fetch(`${booted.server.url}/readyz`)).status).toBe(200)
})

test('nothing of the build of the client is left running', async () => {
  const { stdout } = await import('node:child_process').then(({ spawnSync }) =>
    spawnSync('ps', ['--ppid', String(booted.server.pid()), '-o', 'args='], { encoding: 'utf8' }),
  )
  expect(stdout).not.toMatch(/esbuild/)
})
