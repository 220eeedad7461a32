import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createDeadline } from './deadline.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

it('expires, and later if it is extended', () => {
  const deadline = createDeadline(1_000)
  vi.advanceTimersByTime(900)
  deadline.extend()
  vi.advanceTimersByTime(900)
  expect(deadline.expired).toBe(false)
  vi.advanceTimersByTime(200)
  expect([deadline.expired, deadline.signal.aborted]).toEqual([true, true])
})

it('does not count the time in which it is suspended', () => {
  const deadline = createDeadline(1_000)
  vi.advanceTimersByTime(600)
  const resume = deadline.suspend()
  vi.advanceTimersByTime(7 * 24 * 3_600_000)
  resume()
  resume()
  vi.advanceTimersByTime(300)
  expect(deadline.expired).toBe(false)
  vi.advanceTimersByTime(200)
  expect(deadline.expired).toBe(true)
})

it('is not extended for ever', () => {
  const deadline = createDeadline(1_000)
  for (let second = 0; second < 3_700; second++) {
    vi.advanceTimersByTime(900)
    deadline.extend()
  }
  vi.advanceTimersByTime(400_000)
  expect(deadline.expired).toBe(true)
  const long = createDeadline(2 * 3_600_000)
  vi.advanceTimersByTime(1.5 * 3_600_000)
  expect(long.expired).toBe(false)
})
