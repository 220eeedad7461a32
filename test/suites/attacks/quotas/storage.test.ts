// What one session may store is bounded, for all that its droid prints and asks for.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { dialAs, keyOf, offer, socketOf } from '../../../fixtures/droid-socket.ts'
import { history, processes, spawn, textOf, untilStatus } from '../../../fixtures/sessions.ts'
import { type Booted, boot } from '../../../harness/booted.ts'
import { until } from '../../../harness/wait.ts'

let booted: Booted
let small: string
const mebibyte = 1024 * 1024
const isFull = 'stored 1 MiB of events, the limit of a session (limits.session_mb)'

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } } })
  small = await booted.project({ limits: { session_mb: 1 } })
  await booted.ok('container', { action: 'start', project_id: small })
})
afterAll(() => booted?.stop())

const stored = async (session_id: string) => {
  const [row] = await booted.query<{ bytes: string; counted: string }>(
    `select (select coalesce(sum(octet_length(data::text)), 0) from events where session_id = $1) as bytes,
         stored_bytes as counted from sessions where id = $1`,
    [session_id],
  )
  return { bytes: Number(row?.bytes), counted: Number(row?.counted) }
}

test('what a session stores is bounded: a droid that prints without end fails, and fills no disk', async () => {
  const { session_id } = await spawn(booted, small, 'yes "$(head -c 500 /dev/zero | tr "\\0" y)"', {
    wait_seconds: 0,
  })
  const failed = await untilStatus(booted, session_id, 'failed')
  expect(failed.reason).toBe(isFull)
  await until(async () => (await processes(booted, small, /^yes /)).length === 0, {
    what: 'its droid is gone',
  })
  const { bytes, counted } = await stored(session_id)
  expect(counted).toBeLessThan(mebibyte + 4096)
  expect(bytes).toBeLessThan(mebibyte + 4096)
  expect(bytes).toBeGreaterThan(mebibyte / 2)
  const all = await history(booted, session_id)
  expect(all.map(({ index }) => index)).toEqual(all.map((_, at) => at))
  expect(all.filter(({ type }) => type === 'warning')).toHaveLength(1)
  expect(all.slice(-2)).toMatchObject([
    { type: 'error', kind: 'exhausted', message: expect.stringContaining('dropped') },
    { type: 'status', status: 'failed', reason: isFull },
  ])
})

test('what a session stores does not grow by messages to it, and a new session starts at zero', async () => {
  const { session_id } = await spawn(booted, small, 'head -c 3000000 /dev/zero | tr "\\0" z', {
    wait_seconds: 0,
  })
  await untilStatus(booted, session_id, 'failed')
  expect(
    await booted.fault('session', { action: 'message', session_id, message: 'echo more' }),
  ).toMatchObject({
    kind: 'exhausted',
    message: expect.stringContaining(isFull),
  })
  const next = await spawn(booted, small, 'echo fresh', { new_session: false })
  expect(next.session_id).not.toBe(session_id)
  expect(textOf(await history(booted, next.session_id))).toBe('fresh\n')
})

test('a full session continues when an admin raises the limit', async () => {
  const roomy = await booted.project({ limits: { session_mb: 1 } })
  const { session_id } = await spawn(booted, roomy, 'head -c 3000000 /dev/zero | tr "\\0" z', {
    wait_seconds: 0,
  })
  await untilStatus(booted, session_id, 'failed')
  await booted.ok('project', { action: 'update', project_id: roomy, limits: { session_mb: 10 } })
  await booted.ok('session', { action: 'message', session_id, message: 'echo again', wait_seconds: 30 })
  expect(textOf(await history(booted, session_id))).toContain('again\n')
  await booted.ok('project', { action: 'delete', project_id: roomy })
})

test('what a session stores includes what its droid asks of callers, and their answers', async () => {
  const { session_id } = await booted.ok('session', {
    action: 'spawn',
    project_id: small,
    prompt: 'sleep 900',
    new_session: true,
    ...offer,
  })
  await untilStatus(booted, session_id, 'running')
  const one = {
    session_id,
    project_id: small,
    api_key: keyOf(booted, session_id),
    socket: socketOf(booted, small),
  }
  const dialled = await dialAs(one)
  const big = 'x'.repeat(200_000)
  for (let asked = 0; asked < 40; asked++)
    void dialled.ask('caller_tool', { tool: 'app_slow', arguments: { big } })
  const failed = await untilStatus(booted, session_id, 'failed')
  expect(failed.reason).toBe(isFull)
  await until(async () => (await processes(booted, small, /^sleep 900/)).length === 0, {
    what: 'its droid is gone',
  })
  dialled.close()
})

test('what a session stores is counted as it is stored, for every writer', async () => {
  const { session_id } = await spawn(booted, small, 'echo ä€😀; printf "\\"€%.0s" $(seq 5000)')
  const { bytes, counted } = await stored(session_id)
  const events = (await history(booted, session_id)).length
  expect(counted).toBeGreaterThan(bytes * 0.9)
  expect(counted).toBeLessThan(bytes * 1.1 + events * 100 + 1000)
})
