// The daemon is killed again and again while sessions run, and while they are spawned, messaged and ended.
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  allEvents,
  call,
  expectNumbered,
  expectTurnsEnded,
  insist,
  numbered,
} from '../../fixtures/chaos/chaos.ts'
import { statusesOf } from '../../fixtures/sessions.ts'
import { type Booted, boot, inEngine, onDisk } from '../../harness/booted.ts'
import { seeded } from '../../harness/random.ts'
import { until } from '../../harness/wait.ts'

const long = Boolean(process.env.OUBLIETTE_TEST_CHAOS)
const rounds = long ? 150 : 30
const reattach_ms: number[] = []
let booted: Booted
const projects: string[] = []

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 1000, max_spawns_per_minute: 10_000 } } })
  for (let i = 0; i < 2; i++) projects.push(await booted.project())
  for (const project_id of projects) await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const session = (action: string, args: object) => ({ action, ...args })
const spawnArgs = (project_id: string, idempotency_key: string, prompt: string) =>
  session('spawn', { project_id, prompt, idempotency_key, new_session: true })
const indexOf = async (session_id: string): Promise<number> =>
  (await insist(booted, 'session', session('get', { session_id }))).last_index

/** From the moment the server is ready until every one of them has said something new. */
async function untilReattached(session_ids: string[]): Promise<void> {
  const began = performance.now()
  const before = await Promise.all(session_ids.map(indexOf))
  await Promise.all(
    session_ids.map((id, at) =>
      until(async () => (await indexOf(id)) > before[at]!, { deadline_ms: 20_000, what: `${id} goes on` }),
    ),
  )
  reattach_ms.push(performance.now() - began)
}

test(`nothing is lost, doubled or left over when the daemon is killed ${rounds} times`, {
  timeout: rounds * 20_000,
}, async () => {
  const random = seeded('kills of the daemon')
  const steady: string[] = []
  for (const [at, interval] of [0.01, 0.02, 0.05, 0.1].entries()) {
    const args = spawnArgs(projects[at % 2]!, `steady-${at}`, numbered(`all`, interval))
    steady.push((await insist(booted, 'session', args)).session_id)
  }
  const spoken = (await insist(booted, 'session', spawnArgs(projects[0]!, 'spoken', 'true'))).session_id
  const spawned = new Map<string, string>()
  const ending: string[] = []
  for (let round = 0; round < rounds; round++) {
    // Calls that are under way at the kill; whether they took effect is seen afterwards.
    const project_id = projects[round % 2]!
    const key = `round-${round}`
    const work = `echo ${key} >> did; sleep 0.1; echo done`
    const victim = ending.at(-1)
    const under = [
      call(booted, 'session', spawnArgs(project_id, key, work)),
      call(booted, 'session', session('message', { session_id: spoken, message: `echo m-${round} >> said` })),
      ...(victim ? [call(booted, 'session', session('end', { session_id: victim, wait_seconds: 5 }))] : []),
    ].map((asked) => asked.catch(() => undefined))
    // The instant of the kill is what varies.
    await pause(random.fraction() ** 2 * 300)
    await booted.server.restart('SIGKILL')
    await untilReattached(steady)
    await Promise.all(under)
    const again = await insist(booted, 'session', spawnArgs(project_id, key, work))
    spawned.set(key, again.session_id)
    ending.push(again.session_id)
    // The end that was cut off is asked for again: it is the same end.
    if (victim)
      expect((await insist(booted, 'session', session('end', { session_id: victim }))).status).toBe(
        'completed',
      )
  }

  for (const project_id of projects)
    await insist(booted, 'container', { action: 'exec', project_id, command: 'touch stop-all' })
  let lines = 0
  for (const session_id of steady) {
    await until(
      async () => (await call(booted, 'session', session('get', { session_id }))).status === 'idle',
      {
        deadline_ms: 30_000,
        what: `${session_id} comes to its end`,
      },
    )
    const events = await allEvents(booted, session_id)
    lines += expectNumbered(events)
    expect(expectTurnsEnded(events)).toBe(1)
    expect(statusesOf(events)).toEqual(['starting', 'running', 'idle'])
  }
  await expectOnce(spoken, spawned)
  for (const session_id of [...steady, spoken, ...ending.slice(-1)])
    expect((await insist(booted, 'session', session('end', { session_id }))).status).toBe('completed')
  await expectNothingLeft()
  const worst = Math.max(...reattach_ms)
  const median = reattach_ms.toSorted((a, b) => a - b)[Math.floor(reattach_ms.length / 2)]!
  console.info(
    `chaos: ${rounds} kills, ${lines} lines, ${spawned.size} spawns; reattached in ${median.toFixed(0)} ms (median), ${worst.toFixed(0)} ms (worst)`,
  )
  // Alone on the machine each of them; beside other suites, which take the cores away, the usual one.
  expect(long ? worst : median).toBeLessThan(2000)
})

/** Scripts wrote down that they ran: each spawn once, and each message that was taken once. */
async function expectOnce(spoken: string, spawned: Map<string, string>): Promise<void> {
  await until(
    async () => (await call(booted, 'session', session('get', { session_id: spoken }))).status === 'idle',
    { what: 'all that was said is done' },
  )
  const events = await allEvents(booted, spoken)
  expectTurnsEnded(events)
  const read = async (project_id: string, file: string) =>
    (await insist(booted, 'container', { action: 'exec', project_id, command: `cat ${file}` })).stdout
      .trim()
      .split('\n')
  const taken = events
    .filter((event) => event.type === 'message' && event.role === 'user')
    .flatMap((event) => /m-\d+/.exec(String(event.text)) ?? [])
  expect(await read(projects[0]!, 'said')).toEqual(taken)
  const did = [...(await read(projects[0]!, 'did')), ...(await read(projects[1]!, 'did'))]
  // One that was ended at once may not have got that far, but none did it twice.
  expect(new Set(did).size).toBe(did.length)
  for (const key of did) expect(spawned.has(key)).toBe(true)
  for (const session_id of spawned.values()) expectTurnsEnded(await allEvents(booted, session_id))
}

async function expectNothingLeft(): Promise<void> {
  const command = 'for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline 2>/dev/null && echo; done'
  for (const project_id of projects) {
    let strange: string[] = []
    const isClean = async () => {
      const { stdout } = await insist(booted, 'container', {
        action: 'exec',
        project_id,
        command: ['bash', '-c', command],
      })
      strange = String(stdout)
        .split('\n')
        .filter((line) => line.trim() !== '' && !/supervise|docker-init|^\/sbin\/|\/proc\/\[0-9\]/.test(line))
      return strange.length === 0
    }
    // The supervisor makes pipes in advance, with a program that runs for an instant.
    await until(isClean, { deadline_ms: 5_000, what: 'no process is left' }).catch(() => undefined)
    expect(strange).toEqual([])
  }
  expect(await booted.query('select kind from commands')).toEqual([])
  expect(await booted.query(`select id, status from sessions where status not in ('completed')`)).toEqual([])
  const { sessions } = (
    await booted.query<{ sessions: number }>('select count(*)::int as sessions from sessions')
  )[0]!
  expect(sessions).toBe(rounds + 5)
  for (const project_id of projects) await insist(booted, 'project', { action: 'delete', project_id })
  expect(await inEngine(booted.server)).toEqual({ containers: [], networks: [], volumes: [] })
  expect(await onDisk(booted.server)).toEqual({ projects: [], sockets: [] })
  for (const table of ['sessions', 'events', 'commands', 'containers'])
    expect(await booted.query(`select 1 from ${table}`)).toEqual([])
}
