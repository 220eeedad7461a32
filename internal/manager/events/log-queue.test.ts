import { expect, test } from 'vitest'
import { createLogQueue, partsOf, type Queued } from './log-queue.ts'

const kib = 1024
type Named = Queued & { session_id: string; at?: number }
const job = (project_id: string, session_id: string, characters: number): Named => ({
  project_id,
  session_id,
  events: [{}],
  characters,
})
const push = (queue: ReturnType<typeof createLogQueue<Named>>, ...parts: Named[]) =>
  queue.push(parts[0]!.session_id, parts)
const named = (jobs: Named[]) => jobs.map(({ project_id, session_id }) => `${project_id} ${session_id}`)

test('one commit is bounded, and containers take turns in it', () => {
  const queue = createLogQueue<Named>()
  for (let i = 0; i < 50; i++) push(queue, job('flooded', `f${i}`, 64 * kib))
  push(queue, job('other', 'calm', 100))
  const first = queue.take()
  expect(named(first)).toContain('other calm')
  expect(first.reduce((sum, { characters }) => sum + characters, 0)).toBeLessThanOrEqual(256 * kib)
})

test('calm sessions go first, and neither kind starves the other', () => {
  const queue = createLogQueue<Named>()
  for (let i = 0; i < 100; i++) push(queue, job('flooded', `f${i % 2}`, 60 * kib))
  for (let i = 0; i < 8; i++) {
    push(queue, job('flooded', 'calm', 100))
    const taken = named(queue.take())
    expect(taken[0]).toBe('flooded calm')
    expect(taken.length).toBeGreaterThan(2)
  }
  for (let i = 0; i < 100; i++) push(queue, job('many', `c${i}`, 10 * kib))
  for (let i = 0; i < 8; i++) expect(named(queue.take()).join()).toContain('flooded f')
})

test('the parts of one batch keep their order', () => {
  const queue = createLogQueue<Named>()
  push(queue, ...Array.from({ length: 30 }, (_, at) => ({ ...job('p', 's', 30 * kib), at })))
  const order: (number | undefined)[] = []
  while (!queue.empty) order.push(...queue.take().map(({ at }) => at))
  expect(order).toEqual(Array.from({ length: 30 }, (_, at) => at))
})

test('splits a batch into parts of bounded size, and keeps every event whole', () => {
  const events = Array.from({ length: 3000 }, (_, at) => at)
  const json = events.map((at) => (at === 5 ? 'x'.repeat(1024 * kib) : 'x'.repeat(50)))
  const parts = partsOf(events, json)
  expect(parts.flatMap((part) => part.events)).toEqual(events)
  expect(parts.flatMap((part) => part.json)).toEqual(json)
  for (const part of parts) {
    expect(part.events.length).toBeLessThanOrEqual(1000)
    if (part.events.length > 1) expect(part.characters).toBeLessThanOrEqual(64 * kib)
  }
})
