import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot, each, inEngine, onDisk } from '../../harness/booted.ts'

const count = 50
const atOnce = 8
let booted: Booted

beforeAll(async () => {
  booted = await boot({ config: { reconcile_seconds: 1 } })
})
afterAll(() => booted?.stop())

test('fifty projects are made, started and deleted, eight at a time, and nothing is left', {
  timeout: 180_000,
}, async () => {
  const { ok, exec, server } = booted
  const took: Record<string, number> = {}
  const timed = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    const from = performance.now()
    const result = await work()
    took[what] = Math.round(performance.now() - from)
    return result
  }
  const all = Array.from({ length: count }, (_, index) => index)

  const ids = await timed('create', () => each(all, atOnce, () => booted.project({ init_git: false })))
  expect(new Set(ids).size).toBe(count)
  await timed('start', () =>
    each(ids, atOnce, (project_id) => ok('container', { action: 'start', project_id })),
  )
  await each(ids, atOnce, (project_id) =>
    ok('workspace', { action: 'write_file', project_id, path: 'own-id', content: project_id }),
  )
  const said = await timed('exec', () => each(ids, atOnce, (id) => exec(id, ['cat', 'own-id'])))
  expect(said.map(({ stdout }) => stdout)).toEqual(ids)
  expect((await inEngine(server)).containers).toEqual(ids.toSorted())
  expect((await onDisk(server)).projects).toEqual(ids.toSorted())

  const deleted = await timed('delete', () =>
    each(ids, atOnce, (project_id) => ok('project', { action: 'delete', project_id })),
  )
  expect(deleted.every(({ existed }) => existed)).toBe(true)
  expect(await inEngine(server)).toEqual({ containers: [], networks: [], volumes: [] })
  expect(await onDisk(server)).toEqual({ projects: [], sockets: [] })
  expect((await ok('project', { action: 'list' })).projects).toEqual([])
  process.stdout.write(
    `${count} projects, ${atOnce} at a time: ${Object.entries(took)
      .map(([what, ms]) => `${what} ${ms} ms (${((count / ms) * 1000).toFixed(1)}/s)`)
      .join(', ')}\n`,
  )
})
