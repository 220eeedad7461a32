// Many sessions at once, and one that says very much: whether everything arrives, how fast, and what it costs in memory.
import pg from 'pg'
import { median, report, startServer } from './sessions/server.ts'
import { follow } from './sessions/stream.ts'

const lines = Number(process.argv[2] ?? 1_000_000)
const live = Number(process.argv[3] ?? 100)
await using stack = new AsyncDisposableStack()
const server = await startServer(stack)
const client = new pg.Client({ connectionString: server.database_url })
await client.connect()
stack.defer(() => client.end())

/** The text of a session as it lies in the log, checked line by line on the way. */
async function check(session_id: string, wanted: number): Promise<number> {
  let index = -1
  let next = 1
  let left = ''
  for (;;) {
    const { rows } = await client.query<{ index: string; type: string; text: string | null }>(
      `select index, type, data ->> 'text' as text from events where session_id = $1 and index > $2 order by index limit 500`,
      [session_id, index],
    )
    if (rows.length === 0) break
    for (const row of rows) {
      if (Number(row.index) !== ++index) throw new Error(`index ${row.index} follows ${index - 1}`)
      if (row.type !== 'delta') continue
      const parts = (left + row.text).split('\n')
      left = parts.pop() ?? ''
      for (const line of parts)
        if (Number(line) !== next++) throw new Error(`line ${line} where ${next - 1} belongs`)
    }
  }
  if (next !== wanted + 1) throw new Error(`${next - 1} lines of ${wanted}`)
  return index + 1
}

const idle = await server.peakMegabytes()
const began = performance.now()
const { session_id } = await server.spawn(`seq ${lines}`)
for (;;) {
  const { status } = await server.call('session', { action: 'get', session_id })
  if (status === 'idle') break
  await new Promise((resolve) => setTimeout(resolve, 100))
}
const seconds = (performance.now() - began) / 1000
const peak = await server.peakMegabytes()
const events = await check(session_id, lines)
const megabytes = ({ server: of_server, client: of_client }: typeof peak) =>
  `server ${of_server.toFixed(0)} MB, client ${of_client.toFixed(0)} MB`
report(
  `a droid of ${lines} lines`,
  `${seconds.toFixed(1)} s, ${events} events, none lost; peak RSS ${megabytes(peak)} (before: ${megabytes(idle)})`,
)

const started = performance.now()
const first = new Map<string, number>()
const done = new Map<string, number>()
let over = Promise.withResolvers<void>()
const stream = await follow(
  `${server.url}/projects/${server.project_id}/events?since_index=${await position()}`,
  server.token,
  ({ event, data }) => {
    const id = /"session_id":"(gogol_[0-9a-z]+)"/.exec(data)?.[1]
    if (!id) return
    if (event === 'delta' && !first.has(id)) first.set(id, performance.now())
    if (event !== 'completion') return
    done.set(id, performance.now())
    if (done.size >= live) over.resolve()
  },
)
stack.defer(() => stream.close())
async function position(): Promise<number> {
  return Number((await client.query('select coalesce(max(position), 0) as at from events')).rows[0].at)
}
const all = await Promise.all(
  Array.from({ length: live }, async () => {
    const from = performance.now()
    const spawned = await server.spawn('i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.1; done')
    return { id: spawned.session_id, from }
  }),
)
const spawned_seconds = (performance.now() - started) / 1000
await over.promise
over = Promise.withResolvers()
const all_seconds = (performance.now() - started) / 1000
for (const { id } of all) await check(id, 100)
const waits = all.map(({ id, from }) => first.get(id)! - from)
report(
  `${live} live sessions`,
  `spawned in ${spawned_seconds.toFixed(1)} s, first words after ${median(waits).toFixed(0)} ms (median), all ${live * 100} lines of a 10 s script in ${all_seconds.toFixed(1)} s; ${megabytes(await server.peakMegabytes())}`,
)
