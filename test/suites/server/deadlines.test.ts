// Whatever hangs is given up within its deadline, named, and used again when it goes on: the database, the engine, an
// agent, and the server itself.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type EngineProxy, engineProxy } from '../../fixtures/engine-proxy.ts'
import { openStream } from '../../fixtures/event-stream.ts'
import { type OwnDatabase, ownDatabase } from '../../fixtures/own-database.ts'
import { expectGapFree, history, spawn, statusesOf, textOf, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, containerOf } from '../../harness/booted.ts'
import { resultIn, rpc } from '../../harness/rpc.ts'
import { until } from '../../harness/wait.ts'

const node = '/opt/oubliette/node'
/** Reads what it is told and never answers. */
const deaf = 'process.stdin.resume()'
/** Opens a session and then never ends its turn. */
const mute = `
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  const results = { initialize: { protocolVersion: 1, agentCapabilities: {} }, 'session/new': { sessionId: 's' } }
  if (results[method]) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }))
})`

const config = {
  droids: {
    deaf: { kind: 'acp', command: node, args: ['-e', deaf] },
    mute: { kind: 'acp', command: node, args: ['-e', mute] },
  },
  database_timeout_seconds: 6,
  agent_answer_seconds: 2,
  agent_silence_minutes: 0.05,
}

let booted: Booted
let database: OwnDatabase
let engine: EngineProxy
let project_id: string
/** Sessions of agents that hang while the other tests run. */
const hanging = { deaf: '', mute: '' }

beforeAll(async () => {
  engine = await engineProxy()
  booted = await boot({ embedded: true, config, env: { DOCKER_HOST: engine.docker_host } })
  database = await ownDatabase(booted.server.home)
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
  for (const droid of ['deaf', 'mute'] as const)
    hanging[droid] = (await spawn(booted, project_id, 'hello', { droid, wait_seconds: 0 })).session_id
})
afterEach(async () => {
  engine.resume()
  await database.resume()
})
afterAll(async () => {
  await booted?.stop()
  await engine?.close()
})

async function call(name: string, args: object) {
  const began = performance.now()
  const reply = await rpc(booted.server.url, booted.server.admin_token, 'tools/call', {
    name,
    arguments: args,
  })
  const ms = performance.now() - began
  // Before the door, the token is looked up.
  if (reply.status !== 200) return { ms, error: JSON.parse(reply.text).error }
  const { isError, structuredContent } = resultIn(reply)
  return {
    ms,
    error: isError ? (structuredContent as { error: { kind: string; message: string } }).error : undefined,
  }
}
const exec = (command: string) => call('container', { action: 'exec', project_id, command })

async function readiness() {
  const began = performance.now()
  const answer = await fetch(`${booted.server.url}/readyz`)
  return { status: answer.status, ms: performance.now() - began, body: (await answer.json()) as Answer }
}
const untilReady = () =>
  until(async () => (await readiness()).status === 200, { deadline_ms: 20_000, what: 'the server is ready' })

const lockHolder = async () =>
  (
    await database.query<{ pid: number }>(
      `select pid from pg_stat_activity where application_name like 'oubliette server %'`,
    )
  )[0]!.pid

const rssOf = async (pid: number): Promise<number> =>
  Number(/VmRSS:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))![1]) / 1024

describe('a database that hangs', () => {
  test('fails calls within the deadline and further ones at once, is named, and goes on without loss', {
    timeout: 120_000,
  }, async () => {
    expect((await readiness()).status).toBe(200)
    const lines = 150
    const { session_id } = await spawn(
      booted,
      project_id,
      `for n in $(seq ${lines}); do echo "line $n."; sleep 0.08; done`,
      { wait_seconds: 0 },
    )
    const stream = await openStream(
      booted.server,
      `/sessions/${session_id}/events`,
      booted.server.admin_token,
    )
    await stream.until((events) => events.length > 20, 'lines come')
    const holder = await lockHolder()
    const memory = await rssOf(booted.server.pid())

    await database.hang()
    try {
      const first = await Promise.all([
        exec('true'),
        call('project', { action: 'get', project_id }),
        call('session', { action: 'list', project_id }),
      ])
      for (const { ms, error } of first) {
        expect(error).toMatchObject({ kind: 'unavailable', message: expect.stringContaining('database') })
        expect(ms).toBeLessThan(8_500)
      }
      const { status, ms, body } = await readiness()
      expect({ status, body }).toMatchObject({
        status: 503,
        body: { error: { kind: 'unavailable' }, missing: ['database'], refused: ['every tool'] },
      })
      expect(ms).toBeLessThan(3_500)
      const many = await Promise.all(
        Array.from({ length: 1000 }, () => call('project', { action: 'get', project_id })),
      )
      expect(many.filter(({ error }) => error?.kind !== 'unavailable')).toEqual([])
      expect(Math.max(...many.map(({ ms }) => ms))).toBeLessThan(8_000)
      expect((await rssOf(booted.server.pid())) - memory).toBeLessThan(200)
    } finally {
      await database.resume()
    }

    await untilReady()
    expect((await exec('true')).error).toBeUndefined()
    await untilStatus(booted, session_id, 'idle', 60_000)
    const events = await history(booted, session_id)
    expectGapFree(events, session_id)
    const said = textOf(events).match(/line \d+\./g)
    expect(said).toEqual(Array.from({ length: lines }, (_, at) => `line ${at + 1}.`))
    await stream.until((seen) => seen.length >= events.length, 'the open stream has all of them', 40_000)
    expect(stream.events.map(({ data }) => data.index)).toEqual(events.map(({ index }) => index))
    stream.close()
    expect(await lockHolder()).toBe(holder)
    expect(
      await database.query(`select pid from pg_stat_activity where state like 'idle in transaction%'`),
    ).toEqual([])
  })
})

test('a server that is stopped for a while takes nothing else for hung when it goes on', {
  timeout: 60_000,
}, async () => {
  const holder = await lockHolder()
  const before = booted.server.log().length
  // So that something is under way when the server is stopped.
  await database.hang()
  const asked = exec('true')
  await sleep(500)
  process.kill(booted.server.pid(), 'SIGSTOP')
  // Longer than the deadline: nothing can be observed of a process that is stopped.
  await sleep(7_000)
  await database.resume()
  process.kill(booted.server.pid(), 'SIGCONT')
  expect((await asked).error).toBeUndefined()
  expect((await readiness()).status).toBe(200)
  expect(booted.server.log().slice(before)).not.toMatch(/does not answer/)
  expect(await lockHolder()).toBe(holder)
})

test('an engine that hangs is named, fails calls within the deadline and is used again when it goes on', {
  timeout: 90_000,
}, async () => {
  const other = await booted.project()
  engine.hang()
  try {
    const started = await call('container', { action: 'start', project_id: other })
    expect(started.error).toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(/container engine .* does not answer/),
    })
    expect(started.ms).toBeLessThan(15_000)
    const again = await call('container', { action: 'start', project_id: other })
    expect(again.error).toMatchObject({ kind: 'unavailable' })
    expect(again.ms).toBeLessThan(2_000)
    const { status, ms, body } = await readiness()
    expect({ status, body }).toMatchObject({ status: 503, body: { missing: ['engine'] } })
    expect(body.refused).toContain('container start')
    expect(ms).toBeLessThan(3_500)
    // What needs no engine goes on.
    expect((await exec('true')).error).toBeUndefined()
  } finally {
    engine.resume()
  }
  await untilReady()
  await booted.ok('container', { action: 'start', project_id: other })
  // Its news come again too.
  await (await containerOf(booted.server, other)).kill()
  await until(
    async () =>
      (await booted.ok('project', { action: 'get', project_id: other })).container.status !== 'running',
    { deadline_ms: 20_000, what: 'the server hears that the container has ended' },
  )
})

describe('an agent that hangs', () => {
  test('fails its session with the request that it did not answer', async () => {
    const { reason } = await untilStatus(booted, hanging.deaf, 'failed')
    expect(reason).toBe('the agent did not answer initialize within 2 s')
  })

  test('in a turn is ended, and its session says so', async () => {
    const { reason } = await untilStatus(booted, hanging.mute, 'failed')
    expect(statusesOf(await history(booted, hanging.mute))).toEqual(['starting', 'running', 'failed'])
    expect(reason).toBe('the agent produced no output for 3 s and was killed')
  })
})

test('readiness names a full disk and what is refused meanwhile', { timeout: 60_000 }, async () => {
  expect((await readiness()).body).toEqual({ status: 'ready' })
  const file = join(booted.server.home, 'oubliette.jsonc')
  await writeFile(file, JSON.stringify({ ...config, min_free_disk_mb: 1_000_000_000 }))
  await booted.server.restart()
  await booted.reconnect()
  const { body } = await until(
    async () => {
      const seen = await readiness()
      return seen.status === 503 && seen
    },
    { what: 'the disk is found to be full' },
  )
  expect(body).toMatchObject({
    error: { kind: 'unavailable', message: 'not ready: disk' },
    status: 'not_ready',
    missing: ['disk'],
    refused: ['session spawn', 'container start'],
  })
  const refused = await booted.fault('session', { action: 'spawn', project_id, prompt: 'true' })
  expect(refused.message).toContain('min_free_disk_mb')
})
