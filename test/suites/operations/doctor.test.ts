// `./oubliette doctor`: each thing is broken in turn, named with its remedy, and mended by --fix where that loses nothing.
import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ownDatabase } from '../../fixtures/chaos/embedded-database.ts'
import { type Booted, boot, docker, inEngine, instanceOf } from '../../harness/booted.ts'
import { runCli, runOnTerminal } from '../../harness/cli.ts'
import { freePort } from '../../harness/free-port.ts'

type Line = { check: string; status: string; message: string; hint?: string; command?: string }
type Report = { status: string; fixed: { check: string; message: string; done: boolean }[]; checks: Line[] }

let booted: Booted
beforeAll(async () => {
  booted = await boot()
  await booted.exec(await booted.project(), 'true')
})
afterAll(() => booted?.stop())

const environment = () => ({
  OUBLIETTE_HOME: booted.server.home,
  OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
  OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
  DATABASE_URL: booted.server.database_url!,
})

async function doctor(env: Record<string, string> = {}, ...args: string[]) {
  const began = performance.now()
  const { code, stdout, stderr } = await runCli(['doctor', '-o', 'json', ...args], {
    ...environment(),
    ...env,
  })
  expect(stderr).toBe('')
  return { code, seconds: (performance.now() - began) / 1000, report: JSON.parse(stdout) as Report }
}
const linesOf = ({ report }: { report: Report }, check: string) =>
  report.checks.filter((line) => line.check === check)

test('a server that is well has no finding, and each check has its line', async () => {
  const found = await doctor()
  expect(found.report.checks.filter(({ status }) => status !== 'ok')).toEqual([])
  expect(found.code).toBe(0)
  expect(new Set(found.report.checks.map(({ check }) => check)).size).toBe(14)
  expect(linesOf(found, 'server')[0]!.message).toContain(String(booted.server.pid()))
})

test('the report fits 80 columns, and a wrong option is a usage error', async () => {
  const { code, output } = await runOnTerminal(['doctor'], environment())
  expect(code).toBe(0)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colours take no columns.
  const lines = output.replaceAll(/\x1b\[\d+m|\r/g, '').split('\n')
  expect(lines.length).toBeGreaterThan(14)
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80)
  expect((await runCli(['doctor', '--fx'], environment())).code).toBe(2)
  expect((await runCli(['doctor', '-o', 'xml'], environment())).code).toBe(2)
  const plain = await runCli(['doctor'], { ...environment(), NO_COLOR: '1' })
  expect(plain.stdout).not.toContain('\x1b')
})

test('a secret file that others can read is a problem, and --fix sets its mode', async () => {
  const file = join(booted.server.home, 'session.secret')
  const secret = await readFile(file, 'utf8')
  await chmod(file, 0o644)
  const found = await doctor()
  expect(found.code).toBe(1)
  expect(linesOf(found, 'permissions')).toEqual([
    expect.objectContaining({ status: 'problem', command: `chmod 600 ${file}` }),
  ])
  const fixed = await doctor({}, '--fix')
  expect(fixed.report.fixed).toEqual([expect.objectContaining({ check: 'permissions', done: true })])
  expect(fixed.code).toBe(0)
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  expect(await readFile(file, 'utf8')).toBe(secret)
})

test('--fix does not follow a link to a file of somebody else', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'oub-doctor-'))
  const target = join(folder, 'target')
  await writeFile(target, 'x', { mode: 0o644 })
  await chmod(target, 0o644)
  const home = join(folder, 'home')
  execFileSync('sh', ['-c', `mkdir -m 700 ${home} && ln -s ${target} ${home}/admin.token`])
  await runCli(['doctor', '--fix'], {
    OUBLIETTE_HOME: home,
    OUBLIETTE_ADDRESS: `127.0.0.1:${await freePort()}`,
  })
  expect((await stat(target)).mode & 0o777).toBe(0o644)
  await rm(folder, { recursive: true })
})

test('an engine that cannot be reached, and one that hangs, are named within seconds', async () => {
  const refused = await doctor({ DOCKER_HOST: 'tcp://127.0.0.1:1' })
  expect(linesOf(refused, 'engine')).toEqual([
    expect.objectContaining({ status: 'problem', message: expect.stringContaining('127.0.0.1:1') }),
  ])
  // The others go on.
  expect(linesOf(refused, 'database')[0]!.status).toBe('ok')
  expect(linesOf(refused, 'images')[0]!.status).toBe('skipped')
  const silent = createTcpServer().listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  const hung = await doctor({ DOCKER_HOST: `tcp://127.0.0.1:${port}` })
  expect(linesOf(hung, 'engine')[0]!.status).toBe('problem')
  expect(hung.seconds).toBeLessThan(15)
  const database = await doctor({ DATABASE_URL: `postgresql://u:geheim@127.0.0.1:${port}/x` })
  expect(linesOf(database, 'database')[0]).toMatchObject({
    status: 'problem',
    message: expect.stringContaining('no answer within 3 s'),
  })
  expect(JSON.stringify(database.report)).not.toContain('geheim')
  expect(database.seconds).toBeLessThan(15)
  silent.close()
})

test('an embedded database that was stopped by a signal is named with the command that continues it', async () => {
  const own = await boot({ embedded: true })
  try {
    const database = await ownDatabase(own.server.home)
    const env = {
      OUBLIETTE_HOME: own.server.home,
      OUBLIETTE_ADDRESS: new URL(own.server.url).host,
      DATABASE_URL: '',
    }
    await database.hang()
    const hung = await doctor(env)
    expect(hung.seconds).toBeLessThan(15)
    const [line] = linesOf(hung, 'database')
    expect(line).toMatchObject({ status: 'problem', command: expect.stringMatching(/^kill -CONT \d+/) })
    execFileSync('sh', ['-c', line!.command!])
    expect(linesOf(await doctor(env), 'database')[0]!.status).toBe('ok')
  } finally {
    await own.stop()
  }
})

test('a misspelt key of the config is named, and the other keys still count', async () => {
  const file = join(booted.server.home, 'oubliette.jsonc')
  await writeFile(file, '{ "adress": "x", "min_free_disk_mb": 900000000 }', { mode: 0o600 })
  const found = await doctor()
  await rm(file)
  expect(linesOf(found, 'config')).toEqual([
    expect.objectContaining({ status: 'problem', message: expect.stringContaining('unknown key "adress"') }),
  ])
  expect(linesOf(found, 'disk')[0]!.status).toBe('problem')
})

test('a full disk is a problem', async () => {
  const home = await mkdtemp(join(tmpdir(), 'oub-full-'))
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m,mode=700', 'tmpfs', home])
  try {
    const found = await doctor({ OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: `127.0.0.1:${await freePort()}` })
    expect(linesOf(found, 'disk')).toEqual([
      expect.objectContaining({ status: 'problem', message: expect.stringContaining('min_free_disk_mb') }),
    ])
  } finally {
    execFileSync('umount', [home])
    await rm(home, { recursive: true })
  }
})

test('a rejected key of a provider is a problem, an accepted one is not, and --offline asks nobody', async () => {
  let asked = 0
  const provider = createServer((request, response) => {
    asked++
    response.writeHead(request.headers.authorization === 'Bearer good-key' ? 200 : 401).end('{}')
  }).listen(0, '127.0.0.1')
  await once(provider, 'listening')
  const file = join(booted.server.home, 'oubliette.jsonc')
  const base_url = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/v1`
  const credential = (key: string) => ({ provider: 'openai-compatible', key, base_url })
  const credentials = { right: credential('good-key'), wrong: credential('bad-key') }
  await writeFile(file, JSON.stringify({ credentials }), { mode: 0o600 })
  const found = await doctor()
  const [right, wrong] = linesOf(found, 'providers')
  expect(right).toMatchObject({ status: 'ok', message: expect.stringContaining('"right"') })
  expect(wrong).toMatchObject({ status: 'problem', message: expect.stringContaining('"wrong"') })
  expect(JSON.stringify(found.report)).not.toMatch(/good-key|bad-key/)
  expect(asked).toBe(2)
  expect(linesOf(await doctor({}, '--offline'), 'providers')[0]!.status).toBe('skipped')
  expect(asked).toBe(2)
  await rm(file)
  provider.close()
})

test('after a kill: the stale record and an orphan are named and removed, projects are kept', async () => {
  await booted.server.kill('SIGKILL')
  const kept = (await inEngine(booted.server)).containers
  expect(kept).toHaveLength(1)
  const orphan = randomUUID()
  const [image] = await docker.listImages({ filters: { label: ['oubliette.type=base'] } })
  await docker.createContainer({
    Image: image!.Id,
    Cmd: ['true'],
    Labels: { 'oubliette.instance': await instanceOf(booted.server), 'oubliette.project': orphan },
  })
  const found = await doctor()
  expect(linesOf(found, 'locks')).toEqual([
    expect.objectContaining({ status: 'warning', message: expect.stringContaining('daemon.json') }),
  ])
  expect(linesOf(found, 'left-overs').map(({ message }) => message)).toEqual([
    expect.stringContaining(orphan),
  ])
  expect(linesOf(found, 'address')[0]!.message).toContain('is free')
  const fixed = await doctor({}, '--fix')
  expect(fixed.report.fixed.map(({ check, done }) => [check, done])).toEqual([
    ['locks', true],
    ['left-overs', true],
  ])
  expect(fixed.report.checks.filter(({ status }) => status === 'problem' || status === 'warning')).toEqual([])
  expect((await inEngine(booted.server)).containers).toEqual(kept)
})

test('a held address is named with the process that holds it', async () => {
  const holder = createTcpServer().listen(Number(new URL(booted.server.url).port), '127.0.0.1')
  await once(holder, 'listening')
  const found = await doctor()
  holder.close()
  expect(linesOf(found, 'address')).toEqual([
    expect.objectContaining({
      status: 'problem',
      message: expect.stringContaining(`process ${process.pid}`),
    }),
  ])
})
