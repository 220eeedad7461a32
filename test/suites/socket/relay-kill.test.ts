// A thousand calls at once from a droid in a container, random answers of a caller with a real MCP client, the server
// killed again and again and the caller replaced: each call gets its own answer, none twice, none lost.
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { createClient, tool } from '../../../packages/client/src/index.ts'
import { callingDroid } from '../../fixtures/agents/caller-tool-droid.ts'
import { expectGapFree, history, untilStatus } from '../../fixtures/sessions.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { seeded } from '../../harness/random.ts'
import { until } from '../../harness/wait.ts'

const calls = 1000
const kills = 4
let booted: Booted
let project_id: string
let workspace: string

beforeAll(async () => {
  const rate = { per_token_per_second: 100_000, per_token_burst: 100_000 }
  booted = await boot({ config: { rate, log: { level: 'warn' } } })
  project_id = await booted.project()
  workspace = layoutOf(booted.server.home).workspace(project_id, 'default')
  await booted.ok('container', { action: 'start', project_id })
  await writeFile(join(workspace, 'work.mjs'), await callingDroid())
})
afterAll(() => booted?.stop())

/** What the caller answered to each request, over all its connections. */
const given = new Map<string, Set<string>>()
let asked = 0
const random = seeded('pauses before answers')
/** Drawn in advance, since the order of the requests is not the same in each run. */
const pauses_ms = Array.from({ length: calls }, () => random.below(30))

function startCaller(session_id: string) {
  const stop = new AbortController()
  const work = tool<{ n: number }>({
    run: async ({ n }, { request_id }) => {
      asked += 1
      await pause(pauses_ms[n])
      const answer = randomUUID()
      given.set(request_id, (given.get(request_id) ?? new Set()).add(answer))
      return { n, answer }
    },
  })
  const client = createClient({ url: booted.server.url, token: booted.server.admin_token })
  const session = client.session({ session_id, caller_id: 'app', tools: { work } })
  const attending = session.attend({ signal: stop.signal }).catch(() => undefined)
  return async () => {
    stop.abort()
    await attending
  }
}

it(`${calls} calls, ${kills} kills of the server, and a caller that comes back`, {
  timeout: 400_000,
}, async () => {
  const declared = { name: 'work', inputSchema: { type: 'object' }, timeout_seconds: 600 }
  const { session_id } = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt: `/opt/oubliette/node work.mjs ${calls} answers.json`,
    caller_id: 'app',
    caller_tools: [declared],
  })
  await untilStatus(booted, session_id, 'waiting', 60_000)
  let stopCaller = startCaller(session_id)
  for (let kill = 1; kill <= kills; kill++) {
    const enough = Math.round((calls * kill) / (kills + 1.5))
    const answered = async () => {
      const found = await booted.query<{ n: number }>(
        "select count(*)::int as n from caller_requests where status = 'answered'",
      )
      return found[0]!.n >= enough
    }
    await until(answered, { what: `${enough} calls are answered`, deadline_ms: 120_000, every_ms: 5 })
    await booted.server.kill('SIGKILL')
    // One caller ends while the server is down: the next one finds what is still open.
    if (kill === 2) await stopCaller()
    await booted.server.restart('SIGKILL')
    if (kill === 2) stopCaller = startCaller(session_id)
  }
  // Sooner than an answer would be given up that was on its way when the server was killed.
  const text = await until(() => readFile(join(workspace, 'answers.json'), 'utf8'), {
    what: 'the droid has all its answers',
    deadline_ms: 45_000,
  })
  const answers = JSON.parse(text) as { n: number; answer: { n: number; answer: string }; failed: boolean }[]
  expect(answers.filter(({ failed }) => failed)).toEqual([])
  expect(answers.map(({ answer }) => answer.n)).toEqual(Array.from({ length: calls }, (_, n) => n))

  await booted.reconnect()
  await untilStatus(booted, session_id, 'idle', 60_000)
  await stopCaller()
  const events = await history(booted, session_id)
  expectGapFree(events, session_id)
  const requests = events.filter(({ type }) => type === 'caller_tool_request')
  const results = events.filter(({ type }) => type === 'caller_tool_result')
  const ids = (of: typeof events) => new Set(of.map(({ request_id }) => request_id))
  expect([requests.length, ids(requests).size, results.length, ids(results).size]).toEqual([
    calls,
    calls,
    calls,
    calls,
  ])
  for (const { request_id, arguments: args } of requests) {
    const { n } = args as { n: number }
    const result = results.find((one) => one.request_id === request_id)
    expect(result?.result).toEqual(answers[n]?.answer)
    expect(given.get(String(request_id))).toContain(answers[n]?.answer.answer)
  }
  const [audited] = await booted.query<{ rows: number; ids: number }>(
    `select count(*)::int as rows, count(distinct request_id)::int as ids from audit
     where tool = 'caller_tool' and session_id = $1 and caller_kind = 'session' and outcome = 'ok'`,
    [session_id],
  )
  expect(audited).toEqual({ rows: calls, ids: calls })
  process.stdout.write(`asked ${asked} times for ${calls} calls over ${kills} kills\n`)
})
