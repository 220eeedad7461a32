// Parts of the system are stopped (SIGSTOP, a paused container, a full disk) and go on later. What hangs is named within
// its deadline, nothing waits for it longer, and nothing is lost when it goes on.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { allEvents, call, expectNumbered, insist, numbered } from '../../fixtures/chaos/chaos.ts'
import { postgresOf, signal, supervisorOf } from '../../fixtures/chaos/faults.ts'
import { type Booted, boot, containerOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const rounds = process.env.OUBLIETTE_TEST_CHAOS ? 5 : 1
const deadline_seconds = 3
let booted: Booted
let project_id: string
let other_id: string

beforeAll(async () => {
  booted = await boot({
    embedded: true,
    config: {
      reconcile_seconds: 2,
      database_timeout_seconds: deadline_seconds,
      heartbeat_seconds: 1,
    },
  })
  project_id = await booted.project()
  other_id = await booted.project()
  for (const id of [project_id, other_id]) await booted.ok('container', { action: 'start', project_id: id })
})
afterAll(() => booted?.stop())

const steady = async (id: string, name: string): Promise<string> => {
  const args = { action: 'spawn', project_id: id, prompt: numbered(name, 0.02), new_session: true }
  return (await insist(booted, 'session', args)).session_id
}

const indexOf = async (session_id: string): Promise<number> =>
  (await insist(booted, 'session', { action: 'get', session_id })).last_index

async function untilGoesOn(session_id: string): Promise<void> {
  const before = await indexOf(session_id)
  await until(async () => (await indexOf(session_id)) > before, {
    deadline_ms: 30_000,
    what: `${session_id} goes on`,
  })
}

/** Stops it, and checks that every line of it is there once. */
async function untilWhole(id: string, name: string, session_id: string): Promise<number> {
  await insist(booted, 'container', { action: 'exec', project_id: id, command: `touch stop-${name}` })
  await until(async () => (await call(booted, 'session', { action: 'get', session_id })).status === 'idle', {
    deadline_ms: 60_000,
    what: `${session_id} comes to its end`,
  })
  return expectNumbered(await allEvents(booted, session_id))
}

/** The error of a call that cannot succeed now, and how long it took. */
async function refused(name: string, args: object): Promise<{ text: string; ms: number }> {
  const began = performance.now()
  const text = await call(booted, name, args).then(
    (answer) => {
      throw new Error(`${name} succeeded: ${JSON.stringify(answer)}`)
    },
    (error: Error) => error.message,
  )
  return { text, ms: performance.now() - began }
}

const readiness = async () => {
  const answer = await fetch(`${booted.server.url}/readyz`, { signal: AbortSignal.timeout(10_000) })
  return { status: answer.status, text: await answer.text() }
}

const exec = (id: string, command: string) => ({
  action: 'exec',
  project_id: id,
  command,
  timeout_seconds: deadline_seconds,
})

describe.each(Array.from({ length: rounds }, (_, at) => at))('round %i', { timeout: 120_000 }, (round) => {
  test('PostgreSQL that is stopped is named, calls are refused in time, and calls work again when it continues', async () => {
    const name = `postgres-${round}`
    const session_id = await steady(project_id, name)
    await untilGoesOn(session_id)
    const { postmaster, backends } = await postgresOf(booted.server.home)
    signal([postmaster, ...backends], 'SIGSTOP')
    try {
      const file = `made-${name}`
      const { text, ms } = await refused('container', exec(project_id, `touch ${file}`))
      expect(text).toMatch(/database/)
      expect(ms).toBeLessThan((deadline_seconds + 5) * 1000)
      const { status, text: named } = await until(
        async () => {
          const seen = await readiness()
          return seen.status === 503 && seen
        },
        { what: 'it is not ready' },
      )
      expect(status).toBe(503)
      expect(named).toMatch(/database/)
      expect((await fetch(`${booted.server.url}/healthz`)).status).toBe(200)
    } finally {
      const { postmaster: same, backends: all } = await postgresOf(booted.server.home)
      signal([same, ...all], 'SIGCONT')
    }
    await until(async () => (await readiness()).status === 200, {
      what: 'it is ready again',
      deadline_ms: 30_000,
    })
    await untilGoesOn(session_id)
    // What was refused was not done, then or later.
    const made = await insist(booted, 'container', exec(project_id, `ls made-${name} 2>/dev/null || true`))
    expect(made.stdout).toBe('')
    expect(await untilWhole(project_id, name, session_id)).toBeGreaterThan(0)
  })

  test('a supervisor that is suspended is named, and delays no other', async () => {
    const name = `supervisor-${round}`
    const session_id = await steady(project_id, name)
    const calm_id = await steady(other_id, name)
    await untilGoesOn(session_id)
    const pid = await supervisorOf(booted.server, project_id)
    signal([pid], 'SIGSTOP')
    try {
      const { text, ms } = await refused('container', exec(project_id, 'true'))
      expect(text).toMatch(/supervisor/)
      expect(ms).toBeLessThan((deadline_seconds + 10) * 1000)
      await until(async () => /supervisor|relay/.test((await readiness()).text), {
        what: 'it is named',
        deadline_ms: 60_000,
      })
      expect((await call(booted, 'container', exec(other_id, 'echo calm'))).stdout).toBe('calm\n')
      await untilGoesOn(calm_id)
    } finally {
      signal([pid], 'SIGCONT')
    }
    await untilGoesOn(session_id)
    expect(await untilWhole(project_id, name, session_id)).toBeGreaterThan(0)
    expect(await untilWhole(other_id, name, calm_id)).toBeGreaterThan(0)
  })

  test('a server that was suspended continues without loss', async () => {
    const name = `server-${round}`
    const session_id = await steady(project_id, name)
    await untilGoesOn(session_id)
    const before = await indexOf(session_id)
    signal([booted.server.pid()], 'SIGSTOP')
    // The supervisor gathers meanwhile: as many lines as make ten seconds.
    const log = await containerOf(booted.server, project_id)
    await log
      .wait({ condition: 'not-running', abortSignal: AbortSignal.timeout(10_000) })
      .catch(() => undefined)
    signal([booted.server.pid()], 'SIGCONT')
    await until(async () => (await indexOf(session_id)) > before + 100, {
      what: 'what was gathered is there',
      deadline_ms: 30_000,
    })
    expect((await readiness()).status).toBe(200)
    expect(await untilWhole(project_id, name, session_id)).toBeGreaterThan(100)
  })

  test('a paused container is paused, not crashed, and goes on when it is unpaused', async () => {
    const name = `paused-${round}`
    const session_id = await steady(project_id, name)
    await untilGoesOn(session_id)
    const container = await containerOf(booted.server, project_id)
    await container.pause()
    await until(
      async () =>
        (await call(booted, 'project', { action: 'get', project_id })).container.status === 'paused',
      { what: 'the container is known to be paused' },
    )
    const { text, ms } = await refused('container', exec(project_id, 'true'))
    expect(text).toMatch(/paused/)
    expect(ms).toBeLessThan((deadline_seconds + 5) * 1000)
    await insist(booted, 'container', { action: 'unpause', project_id })
    await untilGoesOn(session_id)
    expect(await untilWhole(project_id, name, session_id)).toBeGreaterThan(0)
    const { Id } = await container.inspect()
    expect((await (await containerOf(booted.server, project_id)).inspect()).Id).toBe(Id)
  })
})
