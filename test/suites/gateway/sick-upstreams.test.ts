// 20 servers, of which one never answers calls, one crashes at every call and one cannot be reached: what the other 17 answer does
// not depend on them. Rounds of three phases: calls of the 17 beside as many calls of three servers that work (twice), and
// beside calls of the three that do not. The two calm phases differ only by what else the machine does: the ratio of
// their figures is the allowance for it.
import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Dialled, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { reading, type ScriptedServer, startScripted, tool } from '../../fixtures/gateway/scripted-server.ts'
import { type Figures, figures, shown } from '../../fixtures/latency/latency.ts'
import { type HttpServer, startHttp } from '../../fixtures/upstream/servers.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const fixture = (path: string) => resolve(import.meta.dirname, '../../fixtures/upstream', path)
const byHttp = Array.from({ length: 12 }, (_, at) => `http${at}`)
const byStdio = Array.from({ length: 5 }, (_, at) => `stdio${at}`)
const healthy = [...byHttp, ...byStdio]
const works = ['mcp__http0__echo', 'mcp__http1__echo', 'mcp__stdio0__echo']
const fails = ['mcp__hanging__hang', 'mcp__crashing__crash', 'mcp__gone__read_note']
const rounds = 10
const phaseMs = 2_000
const timeout_seconds = 1
/** What a model takes between two calls, at the least. */
const pauseMs = { healthy: 10, others: 100 }

let home: string
let booted: Booted
let echo: HttpServer
let gone: ScriptedServer
let well: Dialled
let others: Dialled[]
/** Calls beside those that are measured, by tool. */
const made: Record<string, number> = {}

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'oub-sick-'))
  echo = await startHttp(fixture('echo-server.ts'), ['http'], '/mcp')
  gone = await startScripted({ era: 'modern', tools: [tool('read_note', reading)] })
  const program = (file: string) => ({
    command: process.execPath,
    args: [fixture(file)],
    run: 'process',
    env: { HOSTILE_PID_FILE: join(home, 'pids') },
    policy: { '*': 'allow' },
    timeout_seconds,
    projects: 'all',
  })
  const mcpServers = {
    ...Object.fromEntries(byHttp.map((name) => [name, { url: echo.url, projects: 'all' }])),
    ...Object.fromEntries(byStdio.map((name) => [name, program('echo-server.ts')])),
    hanging: program('hostile/server.ts'),
    crashing: program('hostile/server.ts'),
    gone: { url: gone.url, timeout_seconds, projects: 'all' },
  }
  await writeFile(join(home, 'mcp-servers.json'), JSON.stringify({ mcpServers }))
  const most = { calls_per_second: 10_000, calls_burst: 10_000 }
  booted = await boot({ home, config: { log: { level: 'info' }, gateway: most } })
  const project_id = await booted.project()
  well = await dialAs(await droid(booted, project_id))
  // The others come from a session of their own, over connections of their own.
  const other = await droid(booted, project_id)
  others = await Promise.all(Array.from({ length: 3 }, () => dialAs(other)))
  await until(
    async () => {
      const { result } = await well.ask('oubliette_tools')
      const names = new Set(((result?.tools ?? []) as Answer[]).map(({ name }) => name))
      const wanted = [...healthy.map((name) => `mcp__${name}__echo`), ...fails]
      return wanted.every((name) => names.has(name))
    },
    { what: 'all servers are listed', deadline_ms: 60_000 },
  )
  gone.setReachable(false)
}, 120_000)
afterAll(async () => {
  for (const dialled of [well, ...(others ?? [])]) dialled?.close()
  await booted?.stop()
  await echo?.stop()
  await gone?.stop()
  if (home) await rm(home, { recursive: true, force: true })
}, 60_000)

const call = (dialled: Dialled, name: string, args: object = {}) =>
  dialled.ask('oubliette_call_tool', { tool: name, arguments: args, call_id: randomUUID() })

/** Four at a time, each server in turn. */
async function callHealthy(times: number[]): Promise<void> {
  const end = performance.now() + phaseMs
  let next = 0
  const lane = async () => {
    while (performance.now() < end) {
      const name = healthy[next++ % healthy.length]!
      const message = randomUUID()
      const from = performance.now()
      const answer = await call(well, `mcp__${name}__echo`, { message })
      times.push(performance.now() - from)
      expect(answer.result, `${name}: ${JSON.stringify(answer)}`).toMatchObject({
        content: [{ type: 'text', text: message }],
      })
      await pause(pauseMs.healthy)
    }
  }
  await Promise.all(Array.from({ length: 4 }, lane))
}

const isError = ({ result, error }: { result?: Answer; error?: unknown }) =>
  error !== undefined || result?.isError === true

/** As a droid does that does not give up: again and again, four at a time for each of the tools. */
async function beside(tools: string[], work: () => Promise<void>): Promise<void> {
  let over = false
  const lanes = tools.flatMap((name, at) =>
    Array.from({ length: 4 }, async () => {
      while (!over) {
        const answer = await call(others[at]!, name, { message: 'beside' })
        expect(isError(answer), `${name}: ${JSON.stringify(answer)}`).toBe(fails.includes(name))
        made[name] = (made[name] ?? 0) + 1
        await pause(pauseMs.others)
      }
    }),
  )
  try {
    await work()
  } finally {
    over = true
    await Promise.all(lanes)
  }
}

const ratio = (one: number, other: number) => Math.max(one, other) / Math.min(one, other)

it('17 servers answer every call beside 3 that fail, and do not wait for them', async () => {
  const times = { calm: [] as number[], sick: [] as number[], again: [] as number[] }
  await callHealthy([])
  for (let round = 0; round < rounds; round++) {
    const phases = [
      () => beside(works, () => callHealthy(times.calm)),
      () => beside(fails, () => callHealthy(times.sick)),
      () => beside(works, () => callHealthy(times.again)),
    ]
    // Each phase is as often the first as any other.
    for (let at = 0; at < phases.length; at++) await phases[(at + round) % phases.length]!()
  }
  const seen = Object.fromEntries(
    Object.entries(times).map(([phase, all]) => [phase, figures(all)]),
  ) as Record<keyof typeof times, Figures>
  const both = figures([...times.calm, ...times.again])
  const moved = seen.sick.p99 / both.p99
  const machine = ratio(seen.calm.p99, seen.again.p99)
  for (const [phase, one] of Object.entries(seen)) process.stdout.write(`${phase}: ${shown(one)}\n`)
  process.stdout.write(
    `p99 beside those that fail is ${moved.toFixed(2)} of that beside those that work, whose two phases differ by ` +
      `${machine.toFixed(2)}; other calls ${JSON.stringify(made)}\n`,
  )
  expect(seen.sick.count).toBeGreaterThan(100)
  for (const name of [...works, ...fails]) expect(made[name], name).toBeGreaterThan(10)
  // The target is 1.1, which is missed (docs/performance.md). A call that waits for one of the three exceeds this bound.
  expect(moved).toBeLessThan(3 * machine)
}, 180_000)

it('the state of each is shown, and the process of a server ends with the server', async () => {
  const { servers } = await booted.ok('mcp_server', { action: 'list', limit: 100 })
  const states = Object.fromEntries(servers.map(({ name, state }: Answer) => [name, state]))
  for (const name of healthy) expect(states[name], name).toBe('connected')
  expect(['degraded', 'error']).toContain(states.gone)
  expect(['degraded', 'error']).toContain(states.crashing)
  const pids = (await readFile(join(home, 'pids'), 'utf8')).trim().split('\n').map(Number)
  process.stdout.write(`${pids.length} processes of the two that run the failing program\n`)
  expect(pids.length).toBeGreaterThan(2)
  const isAlive = (pid: number) => {
    try {
      return process.kill(pid, 0)
    } catch {
      return false
    }
  }
  expect(pids.some(isAlive)).toBe(true)
  await booted.server.kill('SIGTERM')
  await until(async () => !pids.some(isAlive), { what: 'all have ended', deadline_ms: 20_000 })
}, 60_000)
