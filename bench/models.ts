// What the model proxy costs: the same requests from the same process to a provider on loopback, directly and through
// the container's listener, the relay socket and the server, in turns.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import type { Wanted } from './models/upstream.ts'
import { startServer } from './relay/server.ts'

const rounds = 7
const single = Number(process.env.BENCH_CALLS ?? 150)
const script = (name: string) => join(import.meta.dirname, 'models', `${name}.ts`)
const agent = new Agent({ keepAlive: true, maxSockets: 64 })

async function start(name: string, ...args: string[]): Promise<{ child: ChildProcess; url: string }> {
  const child = fork(script(name), args)
  const [{ url }] = (await once(child, 'message')) as [{ url: string }]
  return { child, url }
}

type Answer = { first_ms: number; bytes: number }
type Way = { name: string; url: string; key: string }

function ask({ url, key }: Way, wanted: Wanted): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>()
  // About as long as a short conversation.
  const body = JSON.stringify({ ...wanted, model: 'bench', messages: 'x'.repeat(4000) })
  const headers = { 'x-api-key': key, 'content-type': 'application/json', 'content-length': body.length }
  const begun = performance.now()
  const asking = request(`${url}/v1/messages`, { method: 'POST', agent, headers }, (response) => {
    let bytes = 0
    let first_ms = 0
    response.on('data', (chunk: Buffer) => {
      first_ms ||= performance.now() - begun
      bytes += chunk.length
    })
    response.once('end', () => resolve({ first_ms, bytes }))
    response.once('error', reject)
    if (response.statusCode !== 200) reject(new Error(`HTTP ${response.statusCode}`))
  })
  asking.once('error', reject)
  asking.end(body)
  return promise
}

async function firstBytes(way: Way): Promise<number[]> {
  const times: number[] = []
  for (let at = 0; at < single; at++) times.push((await ask(way, { events: 1, at_once: 1 })).first_ms)
  return times
}

/** Megabytes per second. */
async function throughput(way: Way, streams: number, wanted: Wanted): Promise<number> {
  const begun = performance.now()
  const answers = await Promise.all(Array.from({ length: streams }, () => ask(way, wanted)))
  const bytes = answers.reduce((sum, answer) => sum + answer.bytes, 0)
  return bytes / 1e6 / ((performance.now() - begun) / 1000)
}

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!
const percentile = (numbers: number[], part: number) =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length * part)]!

const upstream = await start('upstream')
const { place, stop } = await startServer({
  credentials: { bench: { provider: 'anthropic', key: 'real', base_url: upstream.url } },
  // What all of it may cost at once is not what is measured.
  limits: { max_cost_usd: 0 },
})
const loopback = await start('loopback', place.socket)
const ways: [Way, Way] = [
  { name: 'direct', url: upstream.url, key: 'real' },
  { name: 'proxy', url: `${loopback.url}/anthropic`, key: place.api_key },
]
try {
  for (const way of ways) await throughput(way, 4, { events: 200, at_once: 1 })
  const times: Record<string, number[]> = { direct: [], proxy: [] }
  // Long enough that the beginning of a stream, which is measured above, is a small part of it.
  const kinds: Record<string, [number, Wanted]> = {
    '50 streams at the pace of models (100 events a second each)': [
      50,
      { events: 150, at_once: 1, every_ms: 10 },
    ],
    'one stream, event by event': [1, { events: 200_000, at_once: 1 }],
    '16 streams, event by event': [16, { events: 20_000, at_once: 1 }],
    'one stream, 16 kB at once': [1, { events: 2_000_000, at_once: 128 }],
  }
  const speeds = new Map(Object.keys(kinds).map((kind) => [kind, [[], []] as [number[], number[]]]))
  for (let round = 0; round < rounds; round++) {
    for (const way of ways) times[way.name]!.push(...(await firstBytes(way)))
    for (const [kind, [streams, wanted]] of Object.entries(kinds)) {
      const [direct, proxy] = speeds.get(kind)!
      direct.push(await throughput(ways[0], streams, wanted))
      proxy.push(await throughput(ways[1], streams, wanted))
    }
  }
  const [direct, proxy] = [times.direct!, times.proxy!]
  const added = (part: number) => percentile(proxy, part) - percentile(direct, part)
  process.stdout.write(
    `time to first byte, p50: ${median(direct).toFixed(2)} ms direct, ${median(proxy).toFixed(2)} ms through the proxy: ${added(0.5).toFixed(2)} ms added (p90: ${added(0.9).toFixed(2)} ms)\n`,
  )
  for (const [kind, [plain, through]] of speeds)
    process.stdout.write(
      `throughput, ${kind}: ${median(plain).toFixed(1)} MB/s direct, ${median(through).toFixed(1)} MB/s through the proxy: ${(median(through) / median(plain)).toFixed(2)}\n`,
    )
} finally {
  agent.destroy()
  loopback.child.kill()
  upstream.child.kill()
  await stop()
}
