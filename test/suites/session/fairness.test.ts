// Sessions that print as fast as they can are slowed down, and no others. They can be ended at once.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Flood, prepareCalm, prepareFlood } from '../../fixtures/latency/flood.ts'
import { type Figures, shown, withSlowdown } from '../../fixtures/latency/latency.ts'
import {
  completionOf,
  end,
  expectGapFree,
  get,
  history,
  processes,
  spawn,
  textOf,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let flooded: string
let other: string
const lines = 200
const aim_ms = 100
/** A line without a flood, on a machine of its own: a slow disk shows here, and not in what processes get of the processor. */
const quiet_ms = 12
/** Slowed down by less, without the flood, the machine has nothing else to do. */
const own_slowdown = 1.5
const end_aim_ms = 3_000
const mebibyte = 1024 * 1024

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } } })
  flooded = await booted.project()
  other = await booted.project()
  for (const project_id of [flooded, other]) await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const print = (text: string) => process.stdout.write(`${text}\n`)
const machine = (slowdown: number) => `machine slowed down ${slowdown.toFixed(1)} times`

/** Until each of them has said a good deal, and wants to say more. */
async function flow({ session_ids, begin }: Flood): Promise<void> {
  await begin()
  for (const session_id of session_ids)
    await until(async () => (await get(booted, session_id)).last_index > 12, {
      deadline_ms: 30_000,
      what: `session ${session_id} floods`,
    })
}

/** Answers with how long it took until all of them were over. */
async function endAll({ session_ids }: Flood): Promise<number> {
  const from = performance.now()
  await Promise.all(session_ids.map((session_id) => end(booted, session_id)))
  for (const session_id of session_ids) await untilStatus(booted, session_id, 'completed', 60_000)
  return performance.now() - from
}

/** All of it: what was stored before the end, one event about what was not, and the end itself. */
async function expectEnded(session_id: string): Promise<number> {
  const events = await history(booted, session_id)
  expectGapFree(events, session_id)
  expect(events.at(-1)).toMatchObject({ type: 'status', status: 'completed', reason: 'ended' })
  const told = events.filter(({ type }) => type === 'warning')
  expect(told).toMatchObject([{ message: expect.stringContaining('dropped') }])
  expect(told[0]?.index).toBe(events.length - 2)
  expect(told[0]?.dropped_events).toBeGreaterThan(0)
  expect(events.filter(({ type }) => type === 'completion')).toMatchObject([{ stop_reason: 'cancelled' }])
  return Number(told[0]?.dropped_bytes)
}

test('50 sessions that flood delay neither a calm session of their container nor one of another', {
  timeout: 120_000,
}, async () => {
  const withoutFlood = () =>
    withSlowdown(async () => {
      const alone = await prepareCalm(booted, flooded, 50)
      await alone.begin()
      return await alone.seen()
    })
  const before = await withoutFlood()
  const flood = await prepareFlood(booted, flooded, 50)
  const inside = await prepareCalm(booted, flooded, lines)
  const outside = await prepareCalm(booted, other, lines)
  let exec_ms = 0
  const { result, slowdown } = await withSlowdown(async () => {
    await flood.begin()
    await Promise.all([inside.begin(), outside.begin()])
    const from = performance.now()
    await booted.exec(flooded, ['true'])
    exec_ms = performance.now() - from
    return await Promise.all([inside.seen(), outside.seen()])
  })
  const statuses = await Promise.all(flood.session_ids.map((session_id) => get(booted, session_id)))
  await endAll(flood)
  const after = await withoutFlood()
  const quiet = before.result
  const others = Math.max(before.slowdown, after.slowdown)
  const figure = (name: string, of: Figures) => print(`${name}: ${shown(of)} lines`)
  figure('calm session without a flood', quiet)
  figure('calm session of the flooded container', result[0])
  figure('calm session of another container', result[1])
  print(`exec in the flooded container: ${exec_ms.toFixed(0)} ms; ${machine(slowdown)}`)
  print(`before and after the flood: ${machine(others)}`)
  // The flood is one: each of them still has more to say than is taken.
  expect(new Set(statuses.map(({ status }) => status))).toEqual(new Set(['running']))
  // A flood must not excuse itself by what it takes of the machine.
  const allowed = others < own_slowdown ? 1 : Math.max(slowdown, quiet.p99 / quiet_ms)
  for (const { count, p99 } of result) {
    expect(count).toBe(lines)
    expect(p99).toBeLessThan(aim_ms * allowed)
  }
  expect(exec_ms).toBeLessThan(1000 * slowdown)
})

test('ten sessions that print without end are ended at once: what is not stored is dropped and reported', async () => {
  const flood = await prepareFlood(booted, flooded, 10)
  await flow(flood)
  const { result: took_ms, slowdown } = await withSlowdown(() => endAll(flood))
  print(`ten floods ended in ${took_ms.toFixed(0)} ms; ${machine(slowdown)}`)
  let dropped = 0
  for (const session_id of flood.session_ids) dropped += await expectEnded(session_id)
  print(`dropped ${(dropped / 1024).toFixed(0)} KiB`)
  expect(took_ms).toBeLessThan(end_aim_ms * slowdown)
})

test('a server that is killed while floods are ended loses neither their end nor its report', async () => {
  const flood = await prepareFlood(booted, flooded, 5)
  await flow(flood)
  await Promise.all(
    flood.session_ids.map((session_id) =>
      booted.ok('session', { action: 'end', session_id, wait_seconds: 0 }),
    ),
  )
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
  for (const session_id of flood.session_ids) {
    await untilStatus(booted, session_id, 'completed', 30_000)
    await expectEnded(session_id)
  }
})

test('a droid that printed a lot and finished loses nothing, whenever it is ended', async () => {
  const { session_id, turn_id } = await spawn(booted, flooded, 'seq 300000', { wait_seconds: 0 })
  await until(async () => completionOf(await history(booted, session_id), turn_id), {
    deadline_ms: 30_000,
    what: 'it has finished',
  })
  await end(booted, session_id)
  await untilStatus(booted, session_id, 'completed')
  const events = await history(booted, session_id)
  expect(textOf(events)).toBe(Array.from({ length: 300_000 }, (_, at) => `${at + 1}\n`).join(''))
  expect(events.filter(({ type }) => type === 'warning')).toEqual([])
})

test('a droid that prints without end is slowed down to what is stored, and ended with the reason at its limit', async () => {
  await booted.ok('project', { action: 'update', project_id: other, limits: { session_mb: 32 } })
  const from = performance.now()
  const { session_id } = await spawn(booted, other, 'yes "$(printf "%0200d" 7)"', { wait_seconds: 0 })
  const printed = async () => {
    const { stdout } = await booted.exec(other, [
      'bash',
      '-c',
      'for p in /proc/[0-9]*; do [ "$(< $p/comm)" = yes ] && grep wchar $p/io; done 2> /dev/null; true',
    ])
    return Number(/wchar: (\d+)/.exec(String(stdout))?.[1] ?? 0)
  }
  const stored = async () =>
    Number(
      (await booted.query('select stored_bytes from sessions where id = $1', [session_id]))[0]?.stored_bytes,
    )
  const ahead: number[] = []
  const failed = await until(
    async () => {
      const said = await printed()
      if (said > 0) ahead.push(said - (await stored()))
      const session = await get(booted, session_id)
      return session.status === 'failed' && session
    },
    { deadline_ms: 40_000, what: 'it is ended at its limit' },
  )
  const seconds = ((performance.now() - from) / 1000).toFixed(1)
  const most = Math.max(...ahead)
  print(`${(most / mebibyte).toFixed(1)} MiB ahead at most, ended after ${seconds} s`)
  expect(failed.reason).toBe('stored 32 MiB of events, the limit of a session (limits.session_mb)')
  expect(ahead.length).toBeGreaterThan(2)
  expect(most).toBeLessThan(3 * mebibyte)
  await until(async () => (await processes(booted, other, /^yes /)).length === 0, {
    what: 'its droid is gone',
  })
  expectGapFree(await history(booted, session_id), session_id)
})
