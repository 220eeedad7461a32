// An operator looks into the running server: log, health, configuration, audit.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
beforeAll(async () => {
  booted = await boot({
    config: {
      log: { level: 'info', keep_lines: 200 },
      credentials: { work: { provider: 'anthropic', key: 'sk-a-secret-key' } },
      droids: { mine: { kind: 'acp', command: 'mine', env: { PASSWORD: 'a-secret-value' } } },
    },
  })
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

const diagnostics = (action: string, more = {}) => booted.ok('diagnostics', { action, ...more })

test('health has figures of the process, the database, the engine and the sessions', async () => {
  await booted.ok('session', { action: 'spawn', project_id, prompt: 'echo hello', wait_seconds: 30 })
  const health = await diagnostics('health')
  expect(health).toMatchObject({
    version: expect.stringMatching(/^\d+\.\d+/),
    database: { kind: 'external', ok: true, reason: null },
    engine: { ok: true, version: expect.any(String) },
    sessions: { idle: 1 },
    providers: ['anthropic'],
  })
  expect(health.memory.rss_mb).toBeGreaterThan(20)
  expect(health.uptime_seconds).toBeGreaterThanOrEqual(0)
  await until(async () => (await diagnostics('health')).disk.free_mb > 0, { what: 'the disk was measured' })
})

test('the log is the one that goes to stderr, filtered', async () => {
  const { entries } = await diagnostics('server_log', { grep: 'LISTENING' })
  expect(entries).toMatchObject([{ level: 'info', message: 'listening', url: booted.server.url }])
  const written = booted.server
    .log()
    .split('\n')
    .find((line) => line.includes('"message":"listening"'))
  expect(entries[0]).toEqual(JSON.parse(written ?? '{}'))
  expect((await diagnostics('server_log', { level: 'error' })).entries).toEqual([])
  expect(
    (await diagnostics('server_log', { since: new Date(Date.now() + 60_000).toISOString() })).entries,
  ).toEqual([])
  expect(await booted.fault('diagnostics', { action: 'server_log', limit: 501 })).toMatchObject({
    kind: 'invalid',
  })
})

test('the configuration names no secret, and where a value comes from', async () => {
  const shown = await diagnostics('config')
  const text = JSON.stringify(shown)
  expect(text).not.toContain('a-secret')
  expect(text).not.toContain(booted.server.admin_token)
  expect(shown.config.credentials).toEqual([{ name: 'work', provider: 'anthropic' }])
  expect(shown.config.droids.mine.env).toEqual({ PASSWORD: '«redacted»' })
  expect(shown.sources).toMatchObject({
    address: 'environment',
    database_url: 'environment',
    log: 'file',
    shutdown_seconds: 'default',
  })
})

test('the audit is filtered and paged, newest first', async () => {
  for (let number = 0; number < 5; number++) await booted.ok('project', { action: 'get', project_id })
  await booted.fault('project', { action: 'get', project_id: '00000000-0000-4000-8000-000000000000' })
  const find = async (more = {}) => (await diagnostics('audit', { tool: 'project', ...more })).calls
  await until(async () => (await find({ outcome: 'not_found' })).length === 1, {
    what: 'the refusal is written',
  })
  expect((await find({ project_id, outcome: 'ok' })).length).toBeGreaterThanOrEqual(5)
  const first = await diagnostics('audit', { tool: 'project', limit: 2 })
  const second = await diagnostics('audit', { tool: 'project', limit: 2, cursor: first.next_cursor })
  const times = [...first.calls, ...second.calls].map(({ at }: { at: string }) => at)
  expect(times).toEqual([...times].sort().reverse())
  expect(new Set([...first.calls, ...second.calls].map(({ request_id }) => request_id)).size).toBe(4)
  const { tokens } = await booted.ok('token', { action: 'list' })
  const { token_id } = tokens[0]
  expect((await diagnostics('audit', { actor: token_id })).calls.length).toBeGreaterThan(0)
  expect((await diagnostics('audit', { actor: 'tok_000000000000' })).calls).toEqual([])
})
