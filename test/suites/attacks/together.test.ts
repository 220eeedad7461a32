// Regular expressions that never end, the largest schemas and arguments, diffs of megabytes and a thousand streams, of one
// project and all at the same time: what others of the same server feel of it.
import { constants, setPriority } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import { tools } from '../../fixtures/attacks/attacking-caller.ts'
import { events } from '../../fixtures/attacks/held-request.ts'
import { type Droid, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { expectHealthy, latenciesDuring } from '../../fixtures/latency/latency.ts'
import { spawn, untilSaid } from '../../fixtures/sessions.ts'
import { type Booted, boot, each } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const attack_ms = 10_000
let booted: Booted
let attacked: string
let elsewhere: string

beforeAll(async () => {
  booted = await boot({
    config: {
      droids: scriptedDroids,
      limits: { max_active_sessions: 200, max_spawns_per_minute: 1000 },
      log: { level: 'warn' },
    },
  })
  attacked = await booted.project()
  elsewhere = await booted.project()
  await booted.ok('container', { action: 'start', project_id: attacked })
  await putAgent(booted, attacked)
})
afterAll(() => booted?.stop())

const expressions = { properties: { a: { pattern: '^(a+)+$' } } }
const large = {
  properties: Object.fromEntries(Array.from({ length: 1200 }, (_, at) => [`k${at}`, { type: 'string' }])),
}

/** Calls until the time is over; what waits then is given up. */
async function callOn({ session_id, ...who }: Droid, args: object, ends: number): Promise<number> {
  const dialled = await dialAs({ session_id, ...who })
  let answered = 0
  while (Date.now() < ends) {
    const answer = dialled.ask('caller_tool', { tool: 'app_t0', arguments: args }).then(() => {
      answered += 1
    })
    await Promise.race([answer, pause(Math.max(0, ends - Date.now()))])
  }
  dialled.close()
  return answered
}

test('others are answered during all attacks together', { timeout: 180_000 }, async () => {
  const slow = await Promise.all(
    Array.from({ length: 20 }, (_, at) =>
      droid(booted, attacked, tools({ ...expressions, title: `expression ${at}` })),
    ),
  )
  const big = await Promise.all(
    Array.from({ length: 10 }, (_, at) => droid(booted, attacked, tools({ ...large, title: `large ${at}` }))),
  )
  const { token } = await booted.ok('token', {
    action: 'create',
    name: 'attacker',
    scope: `project:${attacked}`,
  })
  const printing = await spawn(
    booted,
    attacked,
    'for i in $(seq 100000); do echo line $i; sleep 0.01; done',
    { wait_seconds: 0, new_session: true },
  )
  await untilSaid(booted, printing.session_id, 'line 1\n')
  // Wrong at the last property, so that all are checked and no caller is asked.
  const wide = Object.fromEntries(Array.from({ length: 1200 }, (_, at) => [`k${at}`, at === 1199 ? 1 : 'x']))

  let streams = 0
  let calls = 0
  const latencies = await latenciesDuring(booted, elsewhere, async () => {
    // An attacker has machines of its own: its load is not taken from the server.
    setPriority(constants.priority.PRIORITY_LOW)
    const ends = Date.now() + attack_ms
    const work = [
      ...slow.map((one) => callOn(one, { a: `${'a'.repeat(60)}!` }, ends)),
      ...big.map((one) => callOn(one, wide, ends)),
      each(Array.from({ length: 4 }), 4, async () => {
        const { session_id } = await spawn(booted, attacked, 'diffs 40 1000000', {
          droid: 'scripted',
          new_session: true,
          wait_seconds: 0,
        })
        await until(
          async () =>
            ['idle', 'failed'].includes((await booted.ok('session', { action: 'get', session_id })).status),
          { what: 'the diffs were told', deadline_ms: 60_000, every_ms: 500 },
        )
        return 0
      }).then(() => 0),
      each(Array.from({ length: 1000 }), 50, async () => {
        const one = await events(booted.server.url, `/sessions/${printing.session_id}/events`, token)
        if (one.status === 200) streams += 1
        return one
      }).then(async (held) => {
        // The streams stay open for as long as the attack lasts.
        await pause(Math.max(0, ends - Date.now()))
        for (const one of held) one.close()
        return 0
      }),
    ]
    for (const count of await Promise.all(work)) calls += count
    setPriority(constants.priority.PRIORITY_NORMAL)
  })
  expect(streams).toBeGreaterThan(100)
  expect(calls).toBeGreaterThan(100)
  expectHealthy(`all together (${calls} calls answered, ${streams} of 1,000 streams taken)`, latencies)
})
