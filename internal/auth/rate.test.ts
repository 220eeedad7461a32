import { expect, test } from 'vitest'
import { createRate } from './rate.ts'

test('a burst is let through, then the refusal says when to come back', () => {
  let now = 0
  const rate = createRate({ per_second: 2, burst: 3, now: () => now })
  for (let i = 0; i < 3; i++) expect(rate.take('a')).toEqual({ ok: true })
  expect(rate.take('a')).toEqual({ ok: false, retry_after_seconds: 0.5 })
  expect(rate.take('b')).toEqual({ ok: true })
  now = 500
  expect(rate.take('a')).toEqual({ ok: true })
  expect(rate.take('a').ok).toBe(false)
})

test('what was not used does not add up beyond the burst', () => {
  let now = 0
  const rate = createRate({ per_second: 10, burst: 2, now: () => now })
  now = 1_000_000
  expect([rate.take('a').ok, rate.take('a').ok, rate.take('a').ok]).toEqual([true, true, false])
})
