// The event log: how many events a second are made durable, against a plain batched insert of the same rows; and how long
// a page of `events` takes in a session of a thousand and in one of a million.
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { createLog, Secret } from '../internal/log.ts'
import { createLogWriter } from '../internal/manager/events/log-writer.ts'
import { openStore } from '../internal/store/open.ts'
import { median, report, startServer } from './sessions/server.ts'

const rounds = Number(process.argv[2] ?? 7)
const large = Number(process.argv[3] ?? 1_000_000)
await using stack = new AsyncDisposableStack()
const server = await startServer(stack)
const client = new pg.Client({ connectionString: server.database_url })
await client.connect()
stack.defer(() => client.end())

const sessions: string[] = []
for (let i = 0; i < 20; i++) sessions.push((await server.spawn('true', { wait_seconds: 20 })).session_id)
const event = (text: string) => ({
  type: 'delta',
  at: new Date().toISOString(),
  data: { text, stream: 'stdout', turn_id: 'cmd_0123456789abcdef0123' },
})
const batch = 50
const batches = 40
const texts = Array.from({ length: batch }, (_, i) => `line ${i} ${randomBytes(20).toString('hex')}\n`)

const store = await openStore({
  database_url: new Secret(server.database_url),
  log: createLog({ level: 'warn' }),
})
stack.defer(() => store.close())
/** Nothing ends a benchmark. */
const poison = { begin: () => undefined, isSuspect: () => false, close() {} }
const writer = createLogWriter({
  store,
  poison,
  session_mb: 1_048_576,
  onCommit: () => undefined,
  onDoubt: () => undefined,
})

/** As supervisors do it: every session has one batch under way, and the next when it is committed. */
async function durable(): Promise<number> {
  const { rows } = await client.query('select id, committed_seq from sessions')
  const last = new Map(rows.map((row) => [String(row.id), Number(row.committed_seq)]))
  const began = performance.now()
  await Promise.all(
    sessions.map(async (session_id) => {
      let seq = last.get(session_id)! + 1
      for (let i = 0; i < batches; i++) {
        const events = texts.map((text) => ({ seq: seq++, ...event(text) }))
        await writer.receive(server.project_id, session_id, events)
      }
    }),
  )
  return (sessions.length * batches * batch * 1000) / (performance.now() - began)
}

let plain_index = 10_000_000
/** The same rows into the same table, in batches of a thousand, each its own transaction. */
async function plain(): Promise<number> {
  const began = performance.now()
  for (let i = 0; i < batches; i++) {
    const rows = sessions.flatMap((session_id) =>
      texts.map((text) => ({ session_id, index: plain_index++, ...event(text) })),
    )
    await client.query(
      `insert into events (session_id, index, project_id, root_session_id, type, at, data)
       select session_id, index, $3, session_id, type, at, data from unnest($1::text[], $2::bigint[], $4::text[], $5::timestamptz[], $6::jsonb[])
         as row (session_id, index, type, at, data)`,
      [
        rows.map((row) => row.session_id),
        rows.map((row) => row.index),
        server.project_id,
        rows.map((row) => row.type),
        rows.map((row) => row.at),
        rows.map((row) => JSON.stringify(row.data)),
      ],
    )
  }
  const rate = (sessions.length * batches * batch * 1000) / (performance.now() - began)
  await client.query('delete from events where index >= 10000000')
  return rate
}

const seen = { durable: [] as number[], plain: [] as number[] }
for (let round = -1; round < rounds; round++) {
  const rates = { durable: await durable(), plain: await plain() }
  if (round >= 0) for (const name of ['durable', 'plain'] as const) seen[name].push(rates[name])
}
const rate_ratio = median(seen.durable.map((rate, at) => rate / seen.plain[at]!))
report(
  'durable events / plain batched insert',
  `${Math.round(median(seen.durable))}/s / ${Math.round(median(seen.plain))}/s`,
  {
    is: rate_ratio,
    aim: '≥ 0.5',
    met: rate_ratio >= 0.5,
  },
)

async function filled(events: number): Promise<string> {
  const { session_id } = await server.spawn('true', { wait_seconds: 20 })
  await client.query(
    `insert into events (session_id, index, project_id, root_session_id, type, at, data)
     select $1, n, $2, $1, 'delta', now(), jsonb_build_object('text', 'line ' || n, 'stream', 'stdout') from generate_series(100, $3::int - 1) n`,
    [session_id, server.project_id, events],
  )
  await client.query('update sessions set next_index = $2 where id = $1', [session_id, events])
  return session_id
}
const small = { id: await filled(1000), events: 1000 }
const big = { id: await filled(large), events: large }
await client.query('analyze events')
async function page({ id, events }: { id: string; events: number }): Promise<number> {
  const since_index = 100 + Math.floor(Math.random() * (events - 300))
  const began = performance.now()
  await server.call('session', { action: 'events', session_id: id, since_index, max_events: 100 })
  return performance.now() - began
}
const times = { small: [] as number[], big: [] as number[] }
for (let i = -30; i < 300; i++) {
  const pair = { small: await page(small), big: await page(big) }
  if (i >= 0) for (const name of ['small', 'big'] as const) times[name].push(pair[name])
}
const latency_ratio = median(times.big) / median(times.small)
report(
  `events from any index, ${large} / 1000`,
  `${median(times.big).toFixed(2)} ms / ${median(times.small).toFixed(2)} ms`,
  {
    is: latency_ratio,
    aim: '≤ 1.5',
    met: latency_ratio <= 1.5,
  },
)
