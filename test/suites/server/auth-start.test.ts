// A start that cannot work ends at once, with one line that names the reason.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runCli } from '../../harness/cli.ts'
import { cloneDatabase, type TestDatabase } from '../../harness/database.ts'
import { bootServer } from '../../harness/server.ts'

let root: string
let database: TestDatabase
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'oub-'))
  database = await cloneDatabase()
})
afterAll(async () => {
  await database?.drop()
  await rm(root, { recursive: true, force: true })
})

type Case = { says: RegExp; config?: string; env?: Record<string, string> }
const cases: Record<string, Case> = {
  'a misspelt config key': {
    config: '{ "adress": "127.0.0.1:1" }',
    says: /oubliette\.jsonc: unknown key "adress"/,
  },
  'a misspelt key further down': { config: '{ "rate": { "burst": 1 } }', says: /unknown key "rate\.burst"/ },
  'a wrong value': { config: '{ "audit_days": "many" }', says: /audit_days: / },
  'a config that is not JSON': { config: '{ "audit_days": 1', says: /oubliette\.jsonc:1: / },
  'a bad address': { env: { OUBLIETTE_ADDRESS: 'nowhere' }, says: /address "nowhere" is not host:port/ },
  'a bad admin token': { env: { OUBLIETTE_ADMIN_TOKEN: 'hunter2' }, says: /OUBLIETTE_ADMIN_TOKEN is not/ },
  'an address that is not ours': {
    env: { OUBLIETTE_ADDRESS: '192.0.2.1:80' },
    says: /cannot listen on 192\.0\.2\.1:80/,
  },
  'an unreachable database': {
    env: { DATABASE_URL: 'postgresql://user:hunter2@127.0.0.1:1/x' },
    says: /cannot connect to the database at 127\.0\.0\.1:1: .*ECONNREFUSED/,
  },
  'a database URL that is none': {
    env: { DATABASE_URL: 'mysql://hunter2@x' },
    says: /DATABASE_URL is invalid/,
  },
  'an unreachable engine': {
    env: { DOCKER_HOST: 'unix:///nowhere/docker.sock' },
    says: /the container engine at unix:\/\/\/nowhere\/docker\.sock does not answer/,
  },
}

describe('the server does not start with', () => {
  it.each(Object.entries(cases))('%s', async (name, { says, config, env = {} }) => {
    const home = join(root, name.replaceAll(' ', '-'))
    await mkdir(home)
    if (config) await writeFile(join(home, 'oubliette.jsonc'), config)
    const { code, stderr } = await runCli(['serve'], {
      OUBLIETTE_HOME: home,
      OUBLIETTE_ADDRESS: '127.0.0.1:0',
      DATABASE_URL: database.url,
      ...env,
    })
    expect(code).toBe(1)
    const told = stderr.split('\n').filter((line) => line.startsWith('oubliette: '))
    expect(told).toHaveLength(1)
    expect(told[0]).toMatch(says)
    expect(stderr).not.toMatch(/^\s+at |\.ts:\d/m)
    expect(stderr).not.toContain('hunter2')
  })
})

it('a second daemon on the same home is refused', async () => {
  const server = await bootServer()
  try {
    const second = await runCli(['serve'], {
      OUBLIETTE_HOME: server.home,
      OUBLIETTE_ADDRESS: '127.0.0.1:0',
      DATABASE_URL: database.url,
    })
    expect(second.code).toBe(1)
    expect(second.stderr).toContain(String(server.pid()))
    expect(second.stderr).toContain(server.home)
    expect(second.stderr).not.toMatch(/^\s+at /m)
    expect((await fetch(`${server.url}/readyz`)).status).toBe(200)
  } finally {
    await server.stop()
  }
})
