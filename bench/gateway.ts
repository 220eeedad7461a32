// What the gateway costs: the same tool of the same server, called directly with the client of the SDK, through Oubliette with
// its audit, policy and call rows, and through `mcp-proxy` and `supergateway`, by stdio and by HTTP. All ways take
// turns, so that what else the machine does falls on all; what counts is the ratio to the direct call.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  asCaller,
  asDroid,
  directHttp,
  directStdio,
  echoServer,
  installPeers,
  listening,
  mcpProxy,
  supergatewayOfHttp,
  supergatewayOfStdio,
  type Way,
} from './gateway/ways.ts'
import { startServer } from './relay/server.ts'

const rounds = Number(process.env.BENCH_ROUNDS ?? 9)
const alone = Number(process.env.BENCH_CALLS ?? 150)

type Run = { times_ms: number[]; seconds: number }
let number = 0

async function run(way: Way, at_once: number, calls: number): Promise<Run> {
  const times_ms: number[] = []
  let begun = 0
  const from = performance.now()
  const lane = async () => {
    while (begun++ < calls) {
      const message = `message ${++number}`
      const at = performance.now()
      const said = await way.call(message)
      times_ms.push(performance.now() - at)
      if (said !== message) throw new Error(`${way.name}: "${message}" got ${said}`)
    }
  }
  await Promise.all(Array.from({ length: at_once }, lane))
  return { times_ms, seconds: (performance.now() - from) / 1000 }
}

const at = (sorted: number[], part: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!
const median = (numbers: number[]) =>
  at(
    numbers.toSorted((a, b) => a - b),
    0.5,
  )
const percentile = ({ times_ms }: Run, part: number) =>
  at(
    times_ms.toSorted((a, b) => a - b),
    part,
  )

const print = (...cells: unknown[]) =>
  process.stdout.write(
    `${cells.map((cell, place) => (place === 0 ? String(cell).padEnd(20) : String(cell).padStart(11))).join('')}\n`,
  )

/** Ratios are medians of the ratios within a round. */
async function compare(title: string, ways: Way[], at_once: number): Promise<void> {
  const calls = at_once === 1 ? alone : 5 * alone
  for (const way of ways) await run(way, at_once, calls)
  const runs = ways.map(() => [] as Run[])
  for (let round = 0; round < rounds; round++)
    for (const [place, way] of ways.entries()) runs[place]!.push(await run(way, at_once, calls))
  process.stdout.write(`\n${title}, ${at_once === 1 ? 'one call at a time' : `${at_once} at once`}\n`)
  print('', 'protocol', 'calls/s', 'p50 ms', 'p50 ratio', 'p99 ms', 'p99 ratio')
  for (const [place, way] of ways.entries()) {
    const own = runs[place]!
    const ratio = (part: number) =>
      median(own.map((one, round) => percentile(one, part) / percentile(runs[0]![round]!, part))).toFixed(2)
    const ms = (part: number) => median(own.map((one) => percentile(one, part))).toFixed(2)
    const rate = median(own.map(({ times_ms, seconds }) => times_ms.length / seconds)).toFixed(0)
    print(way.name, way.protocol, rate, ms(0.5), ratio(0.5), ms(0.99), ratio(0.99))
  }
}

await using stack = new AsyncDisposableStack()
await installPeers()
const http = await listening(() => [echoServer, 'http'])
stack.defer(http.stop)
// A file in the working directory would count instead of the one in the home.
const empty = await mkdtemp(join(tmpdir(), 'oub-bench-'))
stack.defer(() => rm(empty, { recursive: true, force: true }))
process.chdir(empty)
const common = { projects: 'all' }
const mcpServers = {
  // As the direct call has it: a process of this machine, not a container.
  stdio: { command: process.execPath, args: [echoServer], run: 'process', ...common },
  http: { url: http.url, ...common },
}
const { place, stop } = await startServer(
  { gateway: { calls_per_second: 100_000, calls_burst: 100_000 } },
  { 'mcp-servers.json': JSON.stringify({ mcpServers }) },
)
stack.defer(stop)
const ways: Record<'stdio' | 'HTTP', Way[]> = {
  stdio: [
    await directStdio(),
    await asCaller(place, 'stdio'),
    await asDroid(place, 'stdio'),
    await mcpProxy(),
    await supergatewayOfStdio(),
  ],
  HTTP: [
    await directHttp(http.url),
    await asCaller(place, 'http'),
    await asDroid(place, 'http'),
    await supergatewayOfHttp(http.url),
  ],
}
for (const way of Object.values(ways).flat()) stack.defer(() => way.close())
for (const [title, own] of Object.entries(ways))
  for (const at_once of [1, 16]) await compare(`${title} upstream`, own, at_once)
