// A droid's call of a caller's tool, from the droid to the caller and back: through the server with every request and
// every answer on the disk, and through a floor of the same shape (Unix socket, event stream, POST) that decides nothing
// and keeps nothing. Both are measured in turns, so that what else the machine does falls on both.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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

async function startFloor(): Promise<{ place: Place; stop(): Promise<void> }> {
  const directory = await mkdtemp(join(tmpdir(), 'oub-floor-'))
  const socket = join(directory, 'floor.sock')
  const child = fork(script('floor'), [socket], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
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

const floor = await startFloor()
const server = await startServer()
try {
  const [bare, real] = await Promise.all([pair(floor.place), pair(server.place)])
  for (const { run } of [bare, real]) for (const at_once of [32, 1]) await run(at_once, alone)
  const runs = { floor: [] as Run[], server: [] as Run[], floor32: [] as Run[], server32: [] as Run[] }
  for (let round = 0; round < rounds; round++) {
    runs.floor.push(await bare.run(1, alone))
    runs.server.push(await real.run(1, alone))
    runs.floor32.push(await bare.run(together.at_once, together.calls))
    runs.server32.push(await real.run(together.at_once, together.calls))
  }
  bare.stop()
  real.stop()
  const show = (name: string, ours: Run[], least: Run[]) => {
    const [a, b] = [summary(ours), summary(least)]
    const ms = (value: number) => `${value.toFixed(2)} ms`
    process.stdout.write(
      `${name}: p50 ${ms(a.p50)}, floor ${ms(b.p50)}, ratio ${(a.p50 / b.p50).toFixed(2)}; ` +
        `p99 ${ms(a.p99)}, floor ${ms(b.p99)}, ratio ${(a.p99 / b.p99).toFixed(2)}; ` +
        `${a.per_second.toFixed(0)} round trips/s, floor ${b.per_second.toFixed(0)}\n`,
    )
  }
  show('one at a time', runs.server, runs.floor)
  show(`${together.at_once} at once  `, runs.server32, runs.floor32)
} finally {
  await server.stop()
  await floor.stop()
}
