import { expect, it } from 'vitest'
import { createBackoff } from './backoff.ts'

it('waits longer after each failure, up to a limit; opens after three; success resets it', () => {
  let now = 1_000
  const backoff = createBackoff(
    () => now,
    () => 0.5,
  )
  const waits: number[] = []
  for (let n = 0; n < 12; n++) {
    backoff.failed()
    waits.push(backoff.wait_ms())
    expect(backoff.is_open).toBe(n >= 2)
  }
  expect(waits).toEqual([
    250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000,
  ])
  now += 60_000
  expect(backoff.wait_ms()).toBe(0)
  backoff.succeeded()
  backoff.failed()
  expect([backoff.failures, backoff.wait_ms(), backoff.is_open]).toEqual([1, 250, false])
})

it('is not the same for upstreams that failed together', () => {
  const waits = [0, 1].map((chance) => {
    const backoff = createBackoff(
      () => 0,
      () => chance,
    )
    backoff.failed()
    return backoff.wait_ms()
  })
  expect(waits).toEqual([187.5, 312.5])
})
