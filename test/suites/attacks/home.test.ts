// Mistakes of the operator: a home with the wrong database, a config that shows its secrets or names nothing,
// a download that is not what it should be. None of them may cost data or pass unnoticed.
import { execFile } from 'node:child_process'
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot, uniqueName } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { connect } from '../../harness/client.ts'
import { cloneDatabase, type TestDatabase } from '../../harness/database.ts'
import { bootServer } from '../../harness/server.ts'

const checkout = resolve(import.meta.dirname, '../../..')
let root: string
let other: TestDatabase
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'oub-'))
  other = await cloneDatabase({ empty: true })
})
afterAll(async () => {
  await other?.drop()
  await rm(root, { recursive: true, force: true })
})

/** Starts a server that is expected to refuse, and gives the one line that it says. */
async function refusal(home: string, env: Record<string, string>): Promise<string> {
  const { code, stderr } = await runCli(['serve'], {
    OUBLIETTE_HOME: home,
    OUBLIETTE_ADDRESS: '127.0.0.1:0',
    ...env,
  })
  expect(code, stderr).toBe(1)
  const told = stderr.split('\n').filter((line) => line.startsWith('oubliette: '))
  expect(told, stderr).toHaveLength(1)
  expect(stderr).not.toMatch(/^\s+at |\.ts:\d/m)
  return stderr
}

async function tablesOf(url: string): Promise<number> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query<{ count: number }>(
      "select count(*)::int as count from information_schema.tables where table_schema = 'public'",
    )
    return rows[0]!.count
  } finally {
    await client.end()
  }
}

describe('a home that belongs to an external database', () => {
  let booted: Booted
  let project_id: string
  beforeAll(async () => {
    booted = await boot()
    project_id = await booted.project()
    await booted.ok('workspace', { action: 'write_file', project_id, path: 'kept.txt', content: 'precious' })
    await booted.server.kill('SIGKILL')
  })
  afterAll(async () => await booted?.stop())

  const kept = () =>
    readFile(join(booted.server.home, 'projects', project_id, 'workspaces', 'default', 'kept.txt'), 'utf8')

  test('is not started without DATABASE_URL: the line names the variable, and nothing is made or removed', async () => {
    const said = await refusal(booted.server.home, {})
    expect(said).toMatch(/belongs to another database: DATABASE_URL is not set/)
    expect(await kept()).toBe('precious')
    expect(await readdir(booted.server.home)).not.toContain('postgres')
  })

  test('is not started with an empty database, which stays empty', async () => {
    const said = await refusal(booted.server.home, { DATABASE_URL: other.url })
    expect(said).toMatch(/the database of DATABASE_URL is empty/)
    expect(await tablesOf(other.url)).toBe(0)
    expect(await kept()).toBe('precious')
  })

  test('is not started with the database of another instance', async () => {
    const second = await bootServer()
    try {
      const said = await refusal(booted.server.home, { DATABASE_URL: second.database_url! })
      expect(said).toMatch(/but the database of DATABASE_URL belongs to instance [0-9a-f]+/)
      expect(await kept()).toBe('precious')
    } finally {
      await second.stop()
    }
  })

  test('starts again with its own database, and everything is there', async () => {
    await booted.server.restart()
    await booted.reconnect()
    const { content } = await booted.ok('workspace', { action: 'read_file', project_id, path: 'kept.txt' })
    expect(content).toBe('precious')
  })
})

describe('a home with an embedded database', () => {
  test('is not started with a DATABASE_URL, and starts again without one', async () => {
    const home = join(root, 'embedded')
    const server = await bootServer({ embedded: true, home })
    try {
      const client = await connect(server, server.admin_token)
      const name = uniqueName()
      await client.call('project', { action: 'create', name, network: 'none' })
      await client.close()
      await server.kill('SIGTERM')
      expect(await refusal(home, { DATABASE_URL: other.url })).toMatch(
        /unset it to use the embedded database/,
      )
      await server.restart()
      const again = await connect(server, server.admin_token)
      const { structured } = await again.call('project', { action: 'list' })
      expect(structured.projects).toMatchObject([{ name }])
      await again.close()
    } finally {
      await server.stop()
    }
  })
})

describe('database_url in the config', () => {
  test('is used, so that a start without the variable is a start with the same database', async () => {
    const database = await cloneDatabase()
    const server = await bootServer({ embedded: true, config: { database_url: database.url } })
    try {
      expect((await fetch(`${server.url}/readyz`)).status).toBe(200)
      expect(await readdir(server.home)).not.toContain('postgres')
    } finally {
      await server.stop()
      await database.drop()
    }
  })

  test('that refers to a variable which is not set refuses the start instead of making a database', async () => {
    const home = await configured('unset-database', { database_url: '$' + '{env:NOT_SET_HERE}' })
    expect(await refusal(home, {})).toMatch(
      /database_url refers to the environment variable NOT_SET_HERE, which is not set/,
    )
    expect(await readdir(home)).toEqual(['oubliette.jsonc'])
  })
})

async function configured(name: string, config: object, mode = 0o600): Promise<string> {
  const home = join(root, name)
  await mkdir(home, { mode: 0o700 })
  const file = join(home, 'oubliette.jsonc')
  await writeFile(file, JSON.stringify(config), { mode })
  // The mode of a new file is narrowed by the mask of this process.
  await chmod(file, mode)
  return home
}

const credential = (key: string, more = {}) => ({ credentials: { work: { provider: 'git', key, ...more } } })

describe('a config file', () => {
  test('that holds a secret and that others can read is refused, with the command that fixes it', async () => {
    const home = await configured('readable', credential('hunter2'), 0o644)
    const said = await refusal(home, { DATABASE_URL: other.url })
    expect(said).toMatch(/holds a secret and can be read by other users \(mode 0644\)/)
    expect(said).toMatch(/chmod 600 /)
    expect(said).not.toContain('hunter2')
  })

  test('that others can read is fine as long as it holds no secret', async () => {
    const home = await configured('no-secret', credential('$' + '{env:WORK_KEY}'), 0o644)
    const database = await cloneDatabase()
    const server = await bootServer({ home, database_url: database.url, env: { WORK_KEY: 'hunter2' } })
    await server.stop()
    await database.drop()
    expect(server.log()).toContain('listening')
    expect(server.log()).not.toContain('is not available')
  })

  test('that takes a credential from an unset variable is reported at the start', async () => {
    const home = await configured('unset', credential('$' + '{env:WORK_KEY}'))
    const database = await cloneDatabase()
    const server = await bootServer({ home, database_url: database.url })
    await server.stop()
    await database.drop()
    expect(server.log()).toMatch(/credential \\"work\\" is not available.*WORK_KEY, which is not set/)
  })

  test('with a provider that does not exist is refused, and the known ones are named', async () => {
    const home = await configured('provider', { credentials: { work: { provider: 'antropic', key: 'x' } } })
    expect(await refusal(home, { DATABASE_URL: other.url })).toMatch(
      /credentials\.work\.provider: .*"anthropic"/,
    )
  })

  test('with a field that does not apply to its provider is refused', async () => {
    const home = await configured('useless', credential('x', { region: 'eu-central-1' }))
    expect(await refusal(home, { DATABASE_URL: other.url })).toMatch(
      /credentials\.work\.region does not apply to provider "git"/,
    )
  })
})

describe('the Node that ./oubliette fetches', () => {
  /** A checkout without Node, on a machine whose own Node is too old to run the server. */
  async function prepare(name: string, change: (script: string) => string): Promise<NodeJS.ProcessEnv> {
    const directory = join(root, name)
    await mkdir(join(directory, 'bin'), { recursive: true })
    const script = await readFile(join(checkout, 'oubliette'), 'utf8')
    await writeFile(join(directory, 'oubliette'), change(script), { mode: 0o755 })
    await cp(join(checkout, 'package-lock.json'), join(directory, 'package-lock.json'))
    await cp(join(checkout, 'package.json'), join(directory, 'package.json'))
    for (const part of ['cmd', 'internal', 'node_modules'])
      await symlink(join(checkout, part), join(directory, part))
    const old = `#!/bin/sh\nif [ "$1" = -v ]; then echo v20.0.0; else exec ${process.execPath} "$@"; fi\n`
    await writeFile(join(directory, 'bin', 'node'), old, { mode: 0o755 })
    const npm = (process.env.PATH ?? '').split(':').filter((part) => part !== dirname(process.execPath))
    return { ...process.env, PATH: `${join(directory, 'bin')}:${npm.join(':')}` }
  }
  const start = (name: string, env: NodeJS.ProcessEnv) =>
    promisify(execFile)(join(root, name, 'oubliette'), ['--version'], { env }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      (error: { code: number; stdout: string; stderr: string }) => error,
    )

  test('is refused when its package is not the one that was pinned', async () => {
    const swap = (script: string) =>
      script.replaceAll(/sha512-(.)/g, (_, first) => `sha512-${first === 'A' ? 'B' : 'A'}`)
    const env = await prepare('forged', swap)
    const { code, stderr } = await start('forged', env)
    expect(code).toBe(1)
    expect(stderr).toContain('EINTEGRITY')
    expect(stderr).toMatch(/failed to install node-\S+ with npm/)
    expect(await readdir(join(root, 'forged', '.tools', 'node')).catch(() => [])).not.toContain(
      'node_modules',
    )
  })

  test('is used when it is the pinned one', async () => {
    const env = await prepare('pinned', (script) => script)
    const { code, stdout, stderr } = await start('pinned', env)
    expect(code, stderr).toBe(0)
    expect(stdout).toMatch(/Node 24\./)
  })
})
