// `project get` through the whole stack (authentication, scope, schema, store, audit) against a bare server of the same SDK
// with an empty tool. Rounds are interleaved, so that what the machine does meanwhile meets all of them; what counts is
// the ratio within a round. Usage: project-get.ts [rounds] [era]
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { bodyFor, type Era, eras, headersFor } from '../test/harness/rpc.ts'
import type { Done, Work } from './project-get/client.ts'
import { type Subject, sessionFor, startBare, startOubliette } from './project-get/servers.ts'

const rounds = Number(process.argv[2] ?? 15)
const chosen = eras.filter((era) => process.argv[3] === undefined || process.argv[3] === era)
const milliseconds = 500
type Measured = Done & { cpu_ms: number }
const ticksPerSecond = 100

function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond
}

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN

async function workFor(subject: Subject, era: Era, concurrency: number): Promise<Work> {
  const name = String(subject.call.name)
  const session = await sessionFor(subject, era)
  const headers = { ...headersFor(era, subject.token, 'tools/call', name), 'mcp-session-id': session }
  const given = Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return {
    url: `${subject.url}/mcp`,
    headers: Object.fromEntries(given),
    body: JSON.stringify(bodyFor(era, 'tools/call', subject.call)),
    concurrency,
    milliseconds,
  }
}

await using stack = new AsyncDisposableStack()
const client = fork(join(import.meta.dirname, 'project-get/client.ts'))
stack.defer(() => void client.kill())
const gaveUp = once(client, 'exit').then(() => {
  throw new Error('the client gave up')
})
gaveUp.catch(() => undefined)

/** Also how much of a processor the server itself used for each call: that does not depend on what else runs. */
async function measure({ work, pid }: { work: Work; pid: number }): Promise<Measured> {
  const before = cpuSeconds(pid)
  const done = once(client, 'message') as Promise<[Done]>
  client.send(work)
  const [counted] = await Promise.race([done, gaveUp])
  return { ...counted, cpu_ms: ((cpuSeconds(pid) - before) * 1000) / counted.calls }
}

const subjects = {
  oubliette: await startOubliette(),
  plain: await startBare('plain'),
  tuned: await startBare('tuned'),
}
for (const subject of Object.values(subjects)) stack.defer(subject.stop)

const print = (...cells: unknown[]) =>
  process.stdout.write(`${cells.map((cell, at) => String(cell).padStart(at === 0 ? 10 : 13)).join('')}\n`)
print('era', 'concurrency', 'oubliette/s', 'bare/s', 'ratio', 'cpu ratio', 'tuned/s', 'ratio', 'cpu ratio')
for (const era of chosen)
  for (const concurrency of [1, 32]) {
    const all = []
    for (const [name, subject] of Object.entries(subjects))
      all.push({ name, pid: subject.pid, work: await workFor(subject, era, concurrency) })
    // Compilers and caches get warm before anything is counted.
    for (const one of all) await measure({ ...one, work: { ...one.work, milliseconds: 1500 } })
    const seen: Record<string, Measured[]> = { oubliette: [], plain: [], tuned: [] }
    for (let round = 0; round < rounds; round++)
      for (const one of all) seen[one.name]!.push(await measure(one))
    const rate = (name: string) => Math.round(median(seen[name]!.map((done) => done.calls_per_second)))
    const ratio = (name: string) =>
      median(
        seen.oubliette!.map((done, round) => done.calls_per_second / seen[name]![round]!.calls_per_second),
      ).toFixed(2)
    const cpu = (name: string) => median(seen[name]!.map((done) => done.cpu_ms))
    const cpuRatio = (name: string) => (cpu(name) / cpu('oubliette')).toFixed(2)
    print(
      era,
      concurrency,
      rate('oubliette'),
      rate('plain'),
      ratio('plain'),
      cpuRatio('plain'),
      rate('tuned'),
      ratio('tuned'),
      cpuRatio('tuned'),
    )
  }
