// Many idle sessions with real agents in one container: what they take while their agents run and after hibernation, and
// how long a message to a hibernated one takes until its agent asks the model.
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { defaultDroids } from '../internal/config/default-droids.ts'
import { prompt } from '../test/models/script.ts'
import { startScriptedModel } from '../test/models/scripted-model.ts'
import { type BenchServer, median, report, startServer } from './sessions/server.ts'

const count = Number(process.argv[2] ?? process.env.BENCH_AGENTS ?? 10)
const droids = (process.argv[3] ?? 'opencode,claude').split(',')
const woken = Math.min(count, 20)
const key = 'bench-key'
/** As much as leaves the machine its half: as many agents as fit run at the same time. */
const memory_mb = 8192
/** Started at the same time: each takes seconds of a core until it is ready. */
const lanes = 4
const mebibyte = 1024 * 1024

type MemoryStats = { usage: number; stats: Record<string, number> }

/** What its processes have for themselves: without the cache of files, which the kernel gives back. */
async function containerMb(server: BenchServer): Promise<number> {
  const container = await server.container()
  const { memory_stats } = (await container.stats({ stream: false, 'one-shot': true })) as unknown as {
    memory_stats: MemoryStats
  }
  const { stats, usage } = memory_stats
  return (stats.total_rss ?? stats.anon ?? usage) / mebibyte
}

async function sessionsOf(server: BenchServer) {
  const { sessions } = await server.call('session', {
    action: 'list',
    project_id: server.project_id,
    limit: 200,
  })
  return sessions
}

async function waitFor(what: string, minutes: number, condition: () => Promise<boolean>): Promise<void> {
  for (const deadline = performance.now() + minutes * 60_000; !(await condition()); await pause(250))
    if (performance.now() > deadline) throw new Error(`not within ${minutes} minutes: ${what}`)
}

/** As if they had been idle for long. */
async function expire(database_url: string): Promise<void> {
  const client = new pg.Client({ connectionString: database_url })
  await client.connect()
  await client.query(`update sessions set idle_at = idle_at - interval '3 hours' where status = 'idle'`)
  await client.end()
}

async function measure(droid: string): Promise<void> {
  await using stack = new AsyncDisposableStack()
  const model = await startScriptedModel(key)
  stack.defer(() => model[Symbol.asyncDispose]())
  const server = await startServer(stack, {
    config: {
      credentials: {
        a: { provider: 'anthropic', key, base_url: model.url },
        o: { provider: 'openai', key, base_url: `${model.url}/v1` },
        g: { provider: 'gemini', key, base_url: model.url },
      },
      prices: { 'test-*': { input: 0, output: 0 } },
      droids: { claude: { ...defaultDroids.claude, env: { ENABLE_TOOL_SEARCH: 'false' } } },
      // In the first part only those whose memory is needed.
      hibernate_minutes: 120,
      reconcile_seconds: 2,
      // On a busy machine an agent takes longer to start than it should.
      agent_answer_seconds: 300,
      limits: { max_active_sessions: 1000, max_spawns_per_minute: 10_000, memory_mb, pids: 20_000 },
      log: { level: 'error' },
    },
    project: { droid, model: 'test-model' },
  })
  const empty = await containerMb(server)
  const began = performance.now()
  let made = 0
  let most = { running: 0, mb: 0 }
  const lane = async () => {
    while (made < count) {
      const number = made++
      const text = prompt([{ say: `Hello, number ${number}.` }], `Session ${number}.`)
      const { finished, session_id, status, reason } = await server.spawn(text, { wait_seconds: 300 })
      if (!finished || status !== 'idle')
        throw new Error(`session ${session_id} did not end its turn: it is ${status}, ${reason}`)
      const running = (await sessionsOf(server)).filter(
        (it) => !it.hibernated && ['idle', 'running'].includes(it.status),
      ).length
      const mb = await containerMb(server)
      if (mb > most.mb) most = { running, mb }
    }
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  const first_s = (performance.now() - began) / 1000
  await expire(server.database_url)
  await waitFor('all are hibernated', 10, async () =>
    (await sessionsOf(server)).every(({ hibernated }) => hibernated),
  )
  const after = await containerMb(server)
  const each = (most.mb - empty) / most.running
  report(
    `${count} idle sessions of ${droid}`,
    `${most.running} agents at work ${most.mb.toFixed(0)} MiB (${each.toFixed(0)} each), all hibernated ${after.toFixed(0)} MiB (empty container ${empty.toFixed(0)}); first turns of all in ${first_s.toFixed(0)} s`,
  )

  const wake_ms: number[] = []
  const sessions = (await sessionsOf(server)).slice(0, woken)
  for (const [at, { session_id }] of sessions.entries()) {
    const mark = `wake-${at}-${session_id}`
    const sent = performance.now()
    const message = prompt([{ say: 'Awake.' }], mark)
    const { finished } = await server.call('session', {
      action: 'message',
      session_id,
      message,
      wait_seconds: 120,
    })
    const requests = model.asked.filter(({ body }) => body.includes(mark))
    if (!finished || !requests[0]) throw new Error(`session ${session_id} did not wake`)
    // The conversation of before goes to the model again: the agent remembers. A title may be asked for without it.
    if (!requests.some(({ body }) => body.includes('Hello, number')))
      throw new Error(`session ${session_id} forgot`)
    wake_ms.push(requests[0].at_ms - sent)
  }
  const last = Math.max(...wake_ms)
  report(
    `message to a hibernated ${droid} until its model is asked`,
    `median ${median(wake_ms).toFixed(0)} ms, longest of ${wake_ms.length} ${last.toFixed(0)} ms`,
  )
}

for (const droid of droids) await measure(droid)
