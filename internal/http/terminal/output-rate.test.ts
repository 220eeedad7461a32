import { expect, test } from 'vitest'
import { createRate } from '../../auth/rate.ts'
import { createOutputRate } from './output-rate.ts'

test('terminals take turns, whatever the size of their pieces', async () => {
  const rate = createOutputRate(createRate({ per_second: 1_000_000, burst: 20_000 }))
  const until_ms = performance.now() + 500
  async function flood(bytes: number): Promise<number> {
    let pieces = 0
    for (; performance.now() < until_ms; pieces++) await rate.take('project', bytes)
    return pieces
  }
  const [large, ...small] = await Promise.all([flood(20_000), flood(1_000), flood(1_000), flood(1_000)])
  for (const pieces of small) expect(Math.abs(pieces - large!)).toBeLessThanOrEqual(1)
  expect(large).toBeGreaterThan(10)
})

test('one project does not wait for another', async () => {
  const rate = createOutputRate(createRate({ per_second: 10, burst: 10 }))
  await rate.take('one', 10)
  const waiting = rate.take('one', 10)
  const from = performance.now()
  await rate.take('two', 10)
  expect(performance.now() - from).toBeLessThan(500)
  await waiting
})
