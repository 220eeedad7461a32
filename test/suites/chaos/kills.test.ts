// The server and its PostgreSQL are killed together and apart, while droids print and call tools of a caller, and while
// commands run and changes are made. Nothing is lost, doubled, left over or without its audit row.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { createClient, tool } from '../../../packages/client/src/index.ts'
import { callingDroid } from '../../fixtures/agents/caller-tool-droid.ts'
import { allEvents, call, expectNumbered, insist, numbered } from '../../fixtures/chaos/chaos.ts'
import { type Kill, kills, processesIn } from '../../fixtures/chaos/faults.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { type Random, seeded } from '../../harness/random.ts'
import { rpc } from '../../harness/rpc.ts'
import { until } from '../../harness/wait.ts'

const rounds = process.env.OUBLIETTE_TEST_CHAOS ? 225 : 8
/** Processes of commands that must not outlive the server that asked for them. */
const forever = 'sleep 98765'
const callers = 2
let booted: Booted
const projects: string[] = []
const reattach_ms: number[] = []

beforeAll(async () => {
  booted = await boot({
    embedded: true,
    config: { limits: { max_active_sessions: 100, max_spawns_per_minute: 10_000 } },
  })
  for (let i = 0; i < 2; i++) projects.push(await booted.project())
  for (const project_id of projects) await booted.ok('container', { action: 'start', project_id })
  const workspace = layoutOf(booted.server.home).workspace(projects[0]!, 'default')
  await writeFile(join(workspace, 'work.mjs'), await callingDroid())
})
afterAll(() => booted?.stop())

const indexOf = async (session_id: string): Promise<number> =>
  (await insist(booted, 'session', { action: 'get', session_id })).last_index

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

const steadySession = async (project_id: string, interval: number): Promise<string> => {
  const prompt = numbered('all', interval)
  const args = { action: 'spawn', project_id, prompt, new_session: true }
  return (await insist(booted, 'session', args)).session_id
}

/** A droid that asks its caller for one thing after another, and writes down each answer. */
async function callingSession(name: string): Promise<string> {
  const { session_id } = await insist(booted, 'session', {
    action: 'spawn',
    project_id: projects[0]!,
    prompt: `/opt/oubliette/node work.mjs until stop-all ${name}`,
    new_session: true,
    caller_id: 'app',
    caller_tools: [{ name: 'work', inputSchema: { type: 'object' }, timeout_seconds: 600 }],
  })
  return session_id
}

function attend(session_ids: string[]): () => Promise<void> {
  const stop = new AbortController()
  const client = createClient({ url: booted.server.url, token: booted.server.admin_token })
  const tools = { work: tool<{ n: number }>({ run: ({ n }) => ({ n }) }) }
  const attending = session_ids.map((session_id) =>
    // It ends when the signal is aborted, or with its session.
    client
      .session({ session_id, caller_id: 'app', tools })
      .attend({ signal: stop.signal })
      .catch(() => undefined),
  )
  return async () => {
    stop.abort()
    await Promise.all(attending)
  }
}

type Change = { marker: string; project_id: string; token: string; token_id: string }

/** A token that makes this one change, so that the change is found in the audit by its token. */
async function changeOf(round: number): Promise<Change> {
  const project_id = projects[round % 2]!
  const marker = `change-${round}`
  const { token, token_id } = await insist(booted, 'token', {
    action: 'create',
    name: marker,
    scope: `project:${project_id}`,
  })
  return { marker, project_id, token, token_id }
}

/** Begun, and not waited for: the server is about to be killed. */
function beginWork({ marker, project_id, token }: Change, random: Random): Promise<unknown>[] {
  const exec = (command: string, by: string, more: object = {}) =>
    rpc(booted.server.url, by, 'tools/call', {
      name: 'container',
      arguments: { action: 'exec', project_id, command, ...more },
    })
  const admin = booted.server.admin_token
  const own = random.below(2) ? { user: '1000' } : {}
  return [
    exec(`echo ${marker} >> changes`, token),
    exec(forever, admin, { timeout_seconds: 900, ...own }),
    exec(`sleep 0.2; echo ${marker} >> detached`, admin, { detach: true }),
  ].map((begun) => begun.catch(() => undefined))
}

const linesIn = async (project_id: string, file: string): Promise<string[]> => {
  const command = `cat ${file} 2>/dev/null || true`
  const { stdout } = await insist(booted, 'container', { action: 'exec', project_id, command })
  return String(stdout).split('\n').filter(Boolean)
}

test(`nothing is lost, left over or without its audit row through ${rounds} kills of the server and PostgreSQL`, {
  timeout: 60_000 + rounds * 20_000,
}, async () => {
  const random = seeded('kills')
  const steady = [
    await steadySession(projects[0]!, 0.02),
    await steadySession(projects[1]!, 0.05),
    await steadySession(projects[1]!, 0.1),
  ]
  const names = Array.from({ length: callers }, (_, at) => `answers-${at}`)
  const calling: string[] = []
  for (const name of names) calling.push(await callingSession(name))
  const stopCaller = attend(calling)
  const changes: Change[] = []
  const started_ms: number[] = []
  const kinds = Object.keys(kills) as Kill[]
  for (let round = 0; round < rounds; round++) {
    const change = await changeOf(round)
    changes.push(change)
    const under = beginWork(change, random)
    // The instant of the kill is what varies.
    await pause(random.below(300))
    const kind = kinds[round] ?? random.of(kinds)
    await kills[kind](booted.server)
    const began = performance.now()
    await booted.server.restart('SIGKILL').catch((error: Error) => {
      throw new Error(`round ${round}, killed ${kind}: ${error.message}`)
    })
    started_ms.push(performance.now() - began)
    await untilReattached(steady)
    await Promise.all(under)
  }

  for (const project_id of projects)
    await insist(booted, 'container', { action: 'exec', project_id, command: 'touch stop-all' })
  const ended = (session_id: string) =>
    until(async () => (await call(booted, 'session', { action: 'get', session_id })).status === 'idle', {
      deadline_ms: 60_000,
      what: `${session_id} comes to its end`,
    })
  let lines = 0
  for (const session_id of steady) {
    await ended(session_id)
    lines += expectNumbered(await allEvents(booted, session_id))
  }

  // Each call of a droid is one request, has one result, and the droid got its own answer, in order.
  let calls = 0
  for (const [at, session_id] of calling.entries()) {
    await ended(session_id)
    const events = await allEvents(booted, session_id)
    const requests = events.filter(({ type }) => type === 'caller_tool_request')
    const results = events.filter(({ type }) => type === 'caller_tool_result')
    const asked = requests.map((event) => (event.arguments as { n: number }).n)
    expect(asked).toEqual(asked.map((_, i) => i + 1))
    expect(results.map(({ request_id }) => request_id)).toEqual(requests.map(({ request_id }) => request_id))
    expect(await linesIn(projects[0]!, names[at]!)).toEqual(
      asked.map((n) => JSON.stringify({ n, answer: { n }, failed: false })),
    )
    calls += asked.length
  }
  await stopCaller()

  // Nothing that a dead server had asked for runs on.
  const leftOver = async () =>
    (await Promise.all(projects.map((id) => processesIn(booted.server, id))))
      .flat()
      .filter(({ command }) => command.includes(forever))
  await until(async () => (await leftOver()).length === 0, {
    deadline_ms: 20_000,
    what: 'no command of a dead server is left over',
  })

  // What was done is in the audit, by the token that did it, and every row has its outcome.
  const done = (await Promise.all(projects.map((id) => linesIn(id, 'changes')))).flat()
  expect(new Set(done).size).toBe(done.length)
  const audited = new Set(
    (
      await booted.query<{ token_id: string }>(
        `select token_id from audit where tool = 'container' and action = 'exec' and token_id is not null`,
      )
    ).map(({ token_id }) => token_id),
  )
  const unaudited = done.filter(
    (marker) => !audited.has(changes.find((change) => change.marker === marker)?.token_id ?? ''),
  )
  expect(unaudited).toEqual([])
  await until(
    async () => (await booted.query(`select 1 from audit where outcome = 'pending'`)).length === 0,
    { what: 'every audit row has its outcome' },
  )

  reattach_ms.sort((a, b) => a - b)
  started_ms.sort((a, b) => a - b)
  const p99 = reattach_ms[Math.ceil(reattach_ms.length * 0.99) - 1]!
  console.info(
    `chaos: ${rounds} kills, ${lines} lines and ${calls} caller calls each once, ${done.length} changes with ${unaudited.length} unaudited, ` +
      `0 commands left over, 0 starts refused (median ${started_ms[rounds >> 1]!.toFixed(0)} ms); ` +
      `reattached in ${reattach_ms[rounds >> 1]!.toFixed(0)} ms (median), ${p99.toFixed(0)} ms (p99)`,
  )
})
