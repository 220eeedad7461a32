// The cost of metrics: `project get` with them as a ratio to the same server without them. Rounds are interleaved; what counts
// is the ratio within a round. Usage: metrics.ts [rounds] [swap]
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { bodyFor, headersFor } from '../test/harness/rpc.ts'
import type { Done, Work } from './project-get/client.ts'
import { type Subject, startOubliette } from './project-get/servers.ts'

const rounds = Number(process.argv[2] ?? 15)
const era = '2026-07-28'
const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN

await using stack = new AsyncDisposableStack()
const client = fork(join(import.meta.dirname, 'project-get/client.ts'))
stack.defer(() => void client.kill())

async function measure(subject: Subject, concurrency: number, milliseconds: number): Promise<number> {
  const headers = Object.entries(headersFor(era, subject.token, 'tools/call', String(subject.call.name)))
  const work: Work = {
    url: `${subject.url}/mcp`,
    headers: Object.fromEntries(headers.filter((entry): entry is [string, string] => entry[1] !== undefined)),
    body: JSON.stringify(bodyFor(era, 'tools/call', subject.call)),
    concurrency,
    milliseconds,
  }
  const done = once(client, 'message') as Promise<[Done]>
  client.send(work)
  return (await done)[0].calls_per_second
}

// A server that starts later may be slower for reasons of its own: `swap` as the second argument starts them in the other order.
const settings = [{}, { metrics: false }]
if (process.argv[3] === 'swap') settings.reverse()
const started: Subject[] = []
for (const more of settings) {
  const subject = await startOubliette(more)
  stack.defer(subject.stop)
  started.push(subject)
}
if (process.argv[3] === 'swap') started.reverse()
const [on, off] = started as [Subject, Subject]
for (const concurrency of [1, 32]) {
  for (const subject of [on, off]) await measure(subject, concurrency, 1500)
  const seen: { on: number; off: number }[] = []
  for (let round = 0; round < rounds; round++) {
    // The order alternates, so that neither is always the first.
    const first = round % 2 === 0
    const one = await measure(first ? on : off, concurrency, 500)
    const two = await measure(first ? off : on, concurrency, 500)
    seen.push(first ? { on: one, off: two } : { on: two, off: one })
  }
  const ratio = median(seen.map((both) => both.on / both.off))
  const rate = (of: 'on' | 'off') => Math.round(median(seen.map((both) => both[of])))
  const load = (loadavg()[0] ?? 0).toFixed(1)
  process.stdout.write(
    `concurrency ${concurrency}: on ${rate('on')}/s, off ${rate('off')}/s, ratio ${ratio.toFixed(3)}, load ${load}\n`,
  )
}
