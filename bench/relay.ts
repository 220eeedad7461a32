// A droid's call of a caller's tool, from the droid to the caller and back: through the server with every request and
// every answer on the disk, and through a floor of the same shape (Unix socket, event stream, POST) that decides nothing
// and keeps nothing. Between them stands the least that is durable and speaks MCP. All are measured in turns, so that what
// else the machine does falls on all.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLog } from '../internal/log.ts'
import { startEmbedded } from '../internal/store/embedded/embedded.ts'
import { type Place, startServer } from './relay/server.ts'

const script = (name: string) => join(import.meta.dirname, 'relay', `${name}.ts`)
const rounds = 5
const alone = Number(process.env.BENCH_CALLS ?? 400)
const together = { at_once: 32, calls: 5 * alone }

async function ready(child: ChildProcess): Promise<ChildProcess> {
  const said = await Promise.race([once(child, 'message'), once(child, 'exit').then(() => undefined)])
  if (!said) throw new Error('a part of the benchmark did not start')
  return child
}

type Run = { times_ms: number[]; seconds: number }
async function pair(place: Place) {
  const { url, token, session_id, since, socket, api_key } = place
  const caller = await ready(fork(script('caller'), [url, token, session_id, String(since)]))
  const droid = await ready(fork(script('droid'), [socket, api_key]))
  // Without its other half, either would wait for ever.
  const broken = Promise.race([caller, droid].map((child) => once(child, 'exit'))).then(() => {
    throw new Error('a part of the benchmark ended in the middle')
  })
  broken.catch(() => {})
  return {
    async run(at_once: number, calls: number): Promise<Run> {
      droid.send({ at_once, calls })
      return ((await Promise.race([once(droid, 'message'), broken])) as [Run])[0]
    },
    stop: () => [caller, droid].forEach((child) => void child.kill()),
  }
}

async function startStandIn(
  name: 'floor' | 'least',
  more: string[] = [],
): Promise<{ place: Place; stop(): Promise<void> }> {
  const directory = await mkdtemp(join(tmpdir(), `oub-${name}-`))
  const socket = join(directory, 'relay.sock')
  const child = fork(script(name), [socket, ...more], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  const [text] = (await once(child.stdout!, 'data')) as [Buffer]
  const { port } = JSON.parse(text.toString()) as { port: number }
  return {
    place: { url: `http://127.0.0.1:${port}`, token: '', session_id: 'x', since: -1, socket, api_key: 'x' },
    async stop() {
      child.kill()
      await rm(directory, { recursive: true, force: true })
    },
  }
}

const at = (sorted: number[], part: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!
function summary(runs: Run[]) {
  const sorted = runs.flatMap(({ times_ms }) => times_ms).sort((a, b) => a - b)
  const calls = sorted.length
  return {
    p50: at(sorted, 0.5),
    p99: at(sorted, 0.99),
    per_second: calls / runs.reduce((sum, { seconds }) => sum + seconds, 0),
  }
}

await using stack = new AsyncDisposableStack()
async function add(starting: Promise<{ place: Place; stop(): Promise<void> }>) {
  const { place, stop } = await starting
  stack.defer(stop)
  const halves = await pair(place)
  stack.defer(halves.stop)
  return { ...halves, one: [] as Run[], many: [] as Run[] }
}
const home = await mkdtemp(join(tmpdir(), 'oub-least-'))
stack.defer(() => rm(home, { recursive: true, force: true }))
const database = await startEmbedded({ home, log: createLog({ level: 'warn' }) })
stack.defer(() => database.stop())
const floor = await add(startStandIn('floor'))
const least = await add(startStandIn('least', [database.url.reveal()]))
const server = await add(startServer())
const all = [floor, least, server]

for (const { run } of all) for (const at_once of [32, 1]) await run(at_once, alone)
for (let round = 0; round < rounds; round++) {
  for (const { run, one } of all) one.push(await run(1, alone))
  for (const { run, many } of all) many.push(await run(together.at_once, together.calls))
}

const show = (title: string, of: 'one' | 'many') => {
  const [bottom, middle, ours] = all.map((it) => summary(it[of]))
  const line = (name: string, { p50, p99, per_second }: ReturnType<typeof summary>) =>
    process.stdout.write(
      `${title}  ${name.padEnd(9)} p50 ${p50.toFixed(2)} ms (${(p50 / bottom!.p50).toFixed(2)} of the floor)  ` +
        `p99 ${p99.toFixed(2)} ms (${(p99 / bottom!.p99).toFixed(2)})  ${per_second.toFixed(0)} round trips/s\n`,
    )
  line('floor', bottom!)
  line('least', middle!)
  line('oubliette', ours!)
}
show('one at a time', 'one')
show(`${together.at_once} at once   `, 'many')
