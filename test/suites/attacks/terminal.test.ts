// Hostile callers of terminals, and hostile programs in them.
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { prepareCalm } from '../../fixtures/latency/flood.ts'
import { expectHealthy, latenciesDuring, shown, withSlowdown } from '../../fixtures/latency/latency.ts'
import { noTerminalProcesses, terminalProcesses } from '../../fixtures/terminal/processes.ts'
import { openTerminal, type WebTerminal } from '../../fixtures/terminal/web-terminal.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const per_project = 8
const per_token = 12
let booted: Booted
let project_id: string
let other_id: string
const opened: WebTerminal[] = []
type Options = Parameters<typeof openTerminal>[2]
function open(of: string, options: Options): WebTerminal {
  const terminal = openTerminal(booted.server, of, options)
  opened.push(terminal)
  return terminal
}
const asAdmin = (of: string, ...command: string[]) =>
  open(of, { token: booted.server.admin_token, query: { command } })
const mint = async (scope: string): Promise<{ token: string; token_id: string }> =>
  (await booted.ok('token', { action: 'create', name: 'someone', scope })) as never
const settled = (terminal: WebTerminal) =>
  until(() => terminal.messages.find(({ type }) => type === 'ready' || type === 'error'), {
    deadline_ms: 60_000,
    what: 'the terminal is open or refused',
  })

beforeAll(async () => {
  booted = await boot({ config: { terminals: { per_project, per_token } } })
  project_id = await booted.project()
  other_id = await booted.project()
  for (const id of [project_id, other_id]) await booted.ok('container', { action: 'start', project_id: id })
})
afterEach(async () => {
  for (const { web } of opened.splice(0)) web.terminate()
  for (const id of [project_id, other_id]) await noTerminalProcesses(booted, id)
})
afterAll(() => booted?.stop())

describe('who may open one', () => {
  test('the token of the project may; a read-only one, a foreign one and none may not', async () => {
    const own = await mint(`project:${project_id}`)
    const control = open(project_id, { token: own.token, query: { command: ['echo', 'hello'] } })
    expect(await control.message('exit')).toMatchObject({ exit_code: 0 })
    const kind = async (of: string, scope: string) =>
      (await open(of, { token: (await mint(scope)).token }).message('error')).error
    expect(await kind(project_id, `project:${project_id}:ro`)).toMatchObject({ kind: 'forbidden' })
    expect(await kind(project_id, 'admin:ro')).toMatchObject({ kind: 'forbidden' })
    // The same answer for a project of somebody else and for one that does not exist.
    const absent = '3f2b8c1a-9d4e-4f6a-8b7c-1d2e3f4a5b6c'
    for (const of of [project_id, absent])
      expect(await kind(of, `project:${other_id}`)).toMatchObject({
        kind: 'not_found',
        message: `no project ${of}`,
      })
    const status = async (options: Options) => {
      const refused = open(project_id, options)
      return await until(refused.status, { what: 'an HTTP status' })
    }
    expect(await status({})).toBe(401)
    expect(await status({ token: 'oub_wrong' })).toBe(401)
    const { admin_token: token } = booted.server
    expect(await status({ token, headers: { origin: 'https://example.com' } })).toBe(403)
    expect(await status({ token, headers: { host: 'example.com' } })).toBe(403)
    expect(await status({ token, query: { unknown: '1' } })).toBe(400)
  })

  test('every attempt is in the audit', async () => {
    const rows = await until(
      async () => {
        const found = await booted.query<{ outcome: string }>(
          `select distinct outcome from audit where tool = 'container' and action = 'terminal' order by 1`,
        )
        return found.length >= 3 && found.map(({ outcome }) => outcome)
      },
      { what: 'the audit has all outcomes' },
    )
    expect(rows).toEqual(['forbidden', 'not_found', 'ok'])
  })

  test('other requests with an Upgrade header are answered as if they had none', async () => {
    const status = await new Promise((resolve, reject) => {
      const headers = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABk' }
      request(`${booted.server.url}/healthz`, { headers, agent: false }, (response) => {
        response.resume()
        resolve(response.statusCode)
      })
        .on('error', reject)
        .end()
    })
    expect(status).toBe(200)
  })

  test('a token that is revoked loses its terminals at once, with all that runs in them', async () => {
    const { token, token_id } = await mint(`project:${project_id}`)
    const terminal = open(project_id, {
      token,
      query: { command: ['bash', '-c', 'trap "" HUP; sleep 3001'] },
    })
    await terminal.message('ready')
    await until(async () => (await terminalProcesses(booted, project_id)).includes('sleep 3001'), {
      what: 'it runs',
    })
    await booted.ok('token', { action: 'revoke', token_id })
    expect((await terminal.message('error')).error).toMatchObject({ kind: 'unauthenticated' })
    await until(terminal.closed, { what: 'the connection is closed' })
    await noTerminalProcesses(booted, project_id)
  })
})

describe('very many', () => {
  test('100 at once: each project gets its limit and not more, and a token its own', async () => {
    const all = Array.from({ length: 100 }, () => asAdmin(project_id, 'sleep', '3002'))
    const answers = await Promise.all(all.map(settled))
    const kinds = answers.map(({ type, error }) => error?.kind ?? type)
    expect(kinds.filter((kind) => kind === 'ready')).toHaveLength(per_project)
    expect(kinds.filter((kind) => kind === 'exhausted')).toHaveLength(100 - per_project)
    const { token } = await mint(`project:${other_id}`)
    const calm = open(other_id, { token, query: { command: ['echo', 'served'] } })
    expect(await calm.message('exit')).toMatchObject({ exit_code: 0 })
    // The same token in another project: the rest of its own limit.
    const more = Array.from({ length: 8 }, () => asAdmin(other_id, 'sleep', '3003'))
    const rest = await Promise.all(more.map(settled))
    expect(rest.filter(({ type }) => type === 'ready')).toHaveLength(per_token - per_project)
    // A place is free again when a terminal ends.
    all.find(({ messages }) => messages[0]?.type === 'ready')!.web.close()
    await until(async () => (await settled(asAdmin(project_id, 'sleep', '3004'))).type === 'ready', {
      every_ms: 200,
      what: 'a new terminal after one has ended',
    })
  })
})

describe('floods', () => {
  const lines = 100
  const aim_ms = 100

  test('terminals that print without end delay no calm session, in their container or in another', async () => {
    const quiet = await withSlowdown(async () => {
      const alone = await prepareCalm(booted, project_id, 50)
      await alone.begin()
      return await alone.seen()
    })
    const [inside, outside] = [
      await prepareCalm(booted, project_id, lines),
      await prepareCalm(booted, other_id, lines),
    ]
    const floods = Array.from({ length: 4 }, () =>
      asAdmin(project_id, 'bash', '-c', 'yes "$(printf %0100d 7)"'),
    )
    for (const flood of floods) await until(() => flood.bytes() > 1_000_000, { what: 'it floods' })
    const before = floods.reduce((sum, flood) => sum + flood.bytes(), 0)
    const from = performance.now()
    const { result, slowdown } = await withSlowdown(async () => {
      await Promise.all([inside.begin(), outside.begin()])
      return await Promise.all([inside.seen(), outside.seen()])
    })
    const per_second =
      (floods.reduce((sum, flood) => sum + flood.bytes(), 0) - before) / (performance.now() - from) / 1000
    process.stdout.write(
      `terminals print ${per_second.toFixed(1)} MB/s; calm sessions: ${shown(result[0])}; ${shown(result[1])}; ` +
        `without: ${shown(quiet.result)}; slowed down ${slowdown.toFixed(1)} times\n`,
    )
    const allowed = Math.max(1, slowdown, quiet.result.p99 / 12)
    for (const { count, p99 } of result) {
      expect(count).toBe(lines)
      expect(p99).toBeLessThan(aim_ms * allowed)
    }
    // The rate of a project is bounded.
    expect(per_second).toBeLessThan(12)
    // A flood can be interrupted at once.
    floods[0]!.type('\x03')
    expect(await floods[0]!.message('exit', 10_000)).toMatchObject({ exit_code: 130 })
  }, 90_000)

  test('a reader that acknowledges nothing stops the program, and costs nothing', async () => {
    const rss = () =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${booted.server.pid()}/status`, 'utf8'))?.[1]) / 1024
    const before = rss()
    const readers = Array.from({ length: 6 }, () =>
      open(project_id, {
        token: booted.server.admin_token,
        query: { command: ['yes'] },
        acknowledge: false,
      }),
    )
    for (const one of readers) await until(() => one.bytes() >= 512 * 1024, { what: 'the window is full' })
    const full = readers.map((one) => one.bytes())
    const latencies = await latenciesDuring(booted, other_id, async () => {
      await new Promise((resolve) => setTimeout(resolve, 2_000))
    })
    expectHealthy('terminals without a reader', latencies)
    expect(readers.map((one) => one.bytes())).toEqual(full)
    for (const bytes of full) expect(bytes).toBeLessThanOrEqual(512 * 1024 + 64 * 1024)
    expect(rss() - before).toBeLessThan(100)
    // It goes on where it stopped.
    readers[0]!.send({ type: 'ack', bytes: full[0] })
    await until(() => readers[0]!.bytes() > full[0]!, { what: 'more output' })
  })

  test('input that no program reads, and very many tiny messages, delay no other caller', async () => {
    const flood = asAdmin(project_id, 'sleep', '3005')
    await flood.message('ready')
    const latencies = await latenciesDuring(booted, other_id, async () => {
      const piece = Buffer.alloc(64 * 1024, 'x\n')
      for (let at = 0; at < 200; at++) flood.web.send(piece)
      const tiny = asAdmin(project_id, 'cat')
      await tiny.message('ready')
      for (let at = 0; at < 100_000; at++) tiny.web.send(Buffer.from('x'))
      for (let at = 0; at < 20_000; at++) tiny.send({ type: 'resize', rows: 1 + (at % 50), cols: 80 })
      for (let at = 0; at < 20_000; at++) tiny.web.ping()
      await new Promise((resolve) => setTimeout(resolve, 3_000))
    })
    expectHealthy('a flood of input', latencies)
  }, 60_000)

  test.each([
    ['text that is not JSON', 'x'],
    ['an unknown message', '{"type":"other"}'],
    ['null', 'null'],
    ['an impossible size', '{"type":"resize","rows":0,"cols":80}'],
    ['a size that is too large', '{"type":"resize","rows":10,"cols":1000000000}'],
    ['a negative acknowledgement', '{"type":"ack","bytes":-5}'],
    ['very deep JSON', '['.repeat(100_000)],
  ])('%s ends the terminal with an error', async (_, text) => {
    const terminal = asAdmin(project_id, 'cat')
    await terminal.message('ready')
    terminal.web.send(text)
    expect((await terminal.message('error')).error).toMatchObject({ kind: 'invalid' })
    await until(terminal.closed, { what: 'the connection is closed' })
  })

  test('a message that is too large ends the connection', async () => {
    const terminal = asAdmin(project_id, 'cat')
    await terminal.message('ready')
    terminal.web.send(Buffer.alloc(2 * 1024 * 1024))
    await until(terminal.closed, { what: 'the connection is closed' })
    const control = asAdmin(project_id, 'echo', 'alive')
    expect(await control.message('exit')).toMatchObject({ exit_code: 0 })
  })
})
