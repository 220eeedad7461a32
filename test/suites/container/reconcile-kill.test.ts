import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot, docker, inEngine, instanceOf, onDisk, uniqueName } from '../../harness/booted.ts'
import { type Random, seeded } from '../../harness/random.ts'
import { until } from '../../harness/wait.ts'

const rounds = 20
const workers = 4
const longest_ms = 900
let booted: Booted

beforeAll(async () => {
  booted = await boot({ config: { reconcile_seconds: 1 } })
})
afterAll(() => booted?.stop())

/** What we were told of a project. What was asked and not answered may have happened or not. */
type Told = { id: string; running: boolean | undefined; gone: boolean | undefined }
const told = new Map<string, Told>()

/** Makes, starts, stops and deletes until the server is gone. */
async function work(random: Random, over: () => boolean): Promise<void> {
  while (!over()) {
    const known = random.of([...told.values()].filter(({ gone }) => gone === false)) as Told | undefined
    const chance = random.fraction()
    try {
      if (!known || chance < 0.35) {
        const network = chance < 0.1 ? 'internal' : 'none'
        const id = await booted.project({ name: uniqueName(), network, init_git: chance < 0.2 })
        told.set(id, { id, running: false, gone: false })
      } else if (chance < 0.7) {
        known.running = undefined
        await booted.ok('container', { action: 'start', project_id: known.id })
        known.running = true
      } else if (chance < 0.8) {
        known.running = undefined
        await booted.ok('container', { action: 'stop', project_id: known.id, grace_seconds: 0 })
        known.running = false
      } else {
        known.gone = undefined
        await booted.ok('project', { action: 'delete', project_id: known.id })
        known.gone = true
      }
    } catch (error) {
      // Two workers may have met at one project; what is not answered is not known.
      if (known) known.running = undefined
      if (!over() && !/no project|being deleted/.test((error as Error).message)) throw error
    }
  }
}

type Row = { id: string; deleting_at: string | null; wanted: 'running' | 'stopped'; status: string }

/** What rows, engine and disk disagree about; empty if nothing. */
async function disagreements(): Promise<string[]> {
  const { server } = booted
  const rows = await booted.query<Row>(
    'select id, deleting_at, wanted, status from projects join containers on project_id = id',
  )
  const [engine, disk, instance] = await Promise.all([inEngine(server), onDisk(server), instanceOf(server)])
  const filters = { label: [`oubliette.instance=${instance}`], status: ['running'] }
  const running = (await docker.listContainers({ filters })).map(({ Labels }) => Labels['oubliette.project'])
  const ids = new Set(rows.map(({ id }) => id))
  const short = new Set(rows.map(({ id }) => id.replaceAll('-', '').slice(0, 16)))
  const orphans = [...engine.containers, ...engine.networks, ...engine.volumes, ...disk.projects]
  return [
    ...orphans.filter((id) => !ids.has(id)).map((id) => `${id} has no row`),
    ...disk.sockets.filter((name) => !short.has(name)).map((name) => `socket ${name} has no row`),
    ...rows.filter(({ deleting_at }) => deleting_at).map(({ id }) => `${id} is half deleted`),
    ...rows.filter(({ id }) => !disk.projects.includes(id)).map(({ id }) => `${id} has no directory`),
    ...rows
      .filter(({ id, wanted }) => running.includes(id) !== (wanted === 'running'))
      .map(({ id, wanted }) => `${id} is wanted ${wanted}`),
    ...rows
      .filter(({ wanted, status }) => (wanted === 'running') !== (status === 'running'))
      .map(({ id, wanted, status }) => `${id} is wanted ${wanted} and said to be ${status}`),
  ]
}

test(`killed ${rounds} times during work, the server loses nothing and leaves nothing`, {
  timeout: 240_000,
}, async () => {
  const random = seeded('kills and the work under way')
  const took: number[] = []
  for (let round = 0; round < rounds; round++) {
    let over = false
    const working = Array.from({ length: workers }, () => work(random.fork(), () => over))
    // The instant of the kill is what varies.
    await pause(random.below(longest_ms))
    over = true
    await booted.server.restart('SIGKILL')
    // A new client ends the old one, and with it the calls that will never be answered.
    await booted.reconnect()
    await Promise.all(working)
    const from = performance.now()
    let problems: string[] = []
    await until(
      async () => {
        problems = await disagreements()
        return problems.length === 0
      },
      { what: 'rows, engine and disk agree', deadline_ms: 25_000, every_ms: 100 },
    ).catch((error: Error) => {
      throw new Error(`round ${round}: ${problems.join('; ')}`, { cause: error })
    })
    took.push(performance.now() - from)

    const rows = await booted.query<Row>(
      'select id, deleting_at, wanted, status from projects join containers on project_id = id',
    )
    const found = new Map(rows.map((row) => [row.id, row]))
    for (const { id, gone, running } of told.values()) {
      if (gone !== undefined) expect(found.has(id), `round ${round}: ${id}`).toBe(!gone)
      if (gone === false && running !== undefined)
        expect(found.get(id)?.wanted, `round ${round}: ${id}`).toBe(running ? 'running' : 'stopped')
      if (!found.has(id)) told.delete(id)
    }
    // What was made without an answer is taken over; many are let go, so that each round takes as long as the last.
    for (const { id, wanted } of rows) told.set(id, { id, gone: false, running: wanted === 'running' })
    for (const id of [...told.keys()].slice(6)) {
      await booted.ok('project', { action: 'delete', project_id: id })
      told.delete(id)
    }
  }
  for (const id of told.keys()) await booted.ok('project', { action: 'delete', project_id: id })
  expect(await inEngine(booted.server)).toEqual({ containers: [], networks: [], volumes: [] })
  expect(await onDisk(booted.server)).toEqual({ projects: [], sockets: [] })
  const sorted = took.toSorted((a, b) => a - b).map(Math.round)
  process.stdout.write(
    `${rounds} kills: in agreement ${sorted[Math.floor(rounds / 2)]} ms after ready (median), ${sorted.at(-1)} ms (slowest)\n`,
  )
})
