// The systemd unit: systemd accepts it, its command is a server, and its deadline is longer than the server needs to stop.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCli } from '../../harness/cli.ts'
import { cloneDatabase, type TestDatabase } from '../../harness/database.ts'
import { freePort } from '../../harness/free-port.ts'
import { until } from '../../harness/wait.ts'

let folder: string
let database: TestDatabase
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oub-service-'))
  database = await cloneDatabase()
})
afterAll(async () => {
  await database?.drop()
  await rm(folder, { recursive: true, force: true })
})

const print = async (env: Record<string, string>, ...args: string[]) => {
  const { code, stdout, stderr } = await runCli(['service', 'install', '--print', ...args], env)
  expect([code, stderr]).toEqual([0, ''])
  return stdout
}
const settingOf = (unit: string, key: string) => new RegExp(`^${key}=(.*)$`, 'm').exec(unit)?.[1]

test.runIf(spawnSync('systemd-analyze', ['--version']).status === 0)(
  'systemd accepts the unit of root and of another user, also with a strange home',
  async () => {
    const home = join(folder, 'a "home" of 100% $x')
    for (const args of [[], ['--run-as', 'daemon']]) {
      const file = join(folder, `oubliette-${args.length}.service`)
      await writeFile(file, await print({ OUBLIETTE_HOME: home }, ...args))
      const verified = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' })
      expect([verified.status, verified.stderr]).toEqual([0, ''])
    }
    const broken = join(folder, 'broken.service')
    await writeFile(broken, '[Service]\nExecStart=relative\n')
    expect(spawnSync('systemd-analyze', ['verify', broken]).status).not.toBe(0)
  },
)

test('its command runs a server, which stops within the deadline of the unit', async () => {
  const home = join(folder, 'home')
  const port = await freePort()
  const env = { OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: `127.0.0.1:${port}` }
  execFileSync('mkdir', ['-m', '700', home])
  await writeFile(join(home, 'oubliette.jsonc'), '{ "shutdown_seconds": 33 }', { mode: 0o600 })
  const unit = await print(env)
  expect(Number(settingOf(unit, 'TimeoutStopSec'))).toBeGreaterThan(33 + 10)
  expect(settingOf(unit, 'KillMode')).toBe('process')
  expect(settingOf(unit, 'Restart')).toBe('on-failure')
  const given = [...unit.matchAll(/^Environment="([^=]+)=(.*)"$/gm)].map(([, name, value]) => [name, value])
  expect(Object.fromEntries(given)).toEqual(env)
  const server = spawn('sh', ['-c', `exec ${settingOf(unit, 'ExecStart')}`], {
    cwd: settingOf(unit, 'WorkingDirectory')!,
    env: { PATH: process.env.PATH, ...Object.fromEntries(given), DATABASE_URL: database.url },
    stdio: 'ignore',
  })
  const ended = once(server, 'exit')
  try {
    const ready = async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok
    await until(ready, { what: 'the server is ready', deadline_ms: 60_000 })
  } finally {
    server.kill('SIGTERM')
  }
  expect(await ended).toEqual([0, null])
})

test.skipIf(existsSync('/run/systemd/system'))('without systemd, one line says so', async () => {
  for (const action of ['install', 'remove', 'status']) {
    const { code, stderr } = await runCli(['service', action], { OUBLIETTE_HOME: join(folder, 'none') })
    expect(code).toBe(1)
    expect(stderr.split('\n')[0]).toBe('oubliette: this machine does not run systemd')
  }
})

test('wrong use is a usage error', async () => {
  for (const args of [[], ['start'], ['install', '--user', '--run-as', 'nobody'], ['remove', '--print']])
    expect((await runCli(['service', ...args], {})).code).toBe(2)
})
