import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createLifetimes, whileValid } from './lifetimes.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString()

test('tells at the moment of expiry, once, and not those who stopped watching', () => {
  const lifetimes = createLifetimes()
  const told: string[] = []
  const expires_at = inSeconds(100)
  lifetimes.watch({ token_id: 'a', expires_at }, ({ message }) => told.push(message))
  lifetimes.watch({ token_id: 'a', expires_at }, () => told.push('stopped'))()
  lifetimes.watch({ token_id: 'b', expires_at: inSeconds(200) }, () => told.push('b'))
  lifetimes.watch({ token_id: 'c', expires_at: null }, () => told.push('c'))
  vi.advanceTimersByTime(99_900)
  expect(told).toEqual([])
  vi.advanceTimersByTime(200)
  expect(told).toEqual(['the token has expired'])
  expect(lifetimes.watched()).toEqual(['b', 'c'])
  vi.advanceTimersByTime(1_000_000)
  expect(told).toEqual(['the token has expired', 'b'])
})

test('tells at once what has expired, and of the earliest of many', () => {
  const lifetimes = createLifetimes()
  const told: number[] = []
  lifetimes.watch({ token_id: 'a', expires_at: inSeconds(-1) }, () => told.push(-1))
  expect(told).toEqual([-1])
  for (const seconds of [50, 10, 30])
    lifetimes.watch({ token_id: null, expires_at: inSeconds(seconds) }, () => told.push(seconds))
  vi.advanceTimersByTime(10_001)
  expect(told).toEqual([-1, 10])
  vi.advanceTimersByTime(45_000)
  expect(told).toEqual([-1, 10, 30, 50])
})

test('takes a lifetime that no timer can count', () => {
  const lifetimes = createLifetimes()
  let told = 0
  lifetimes.watch({ token_id: 'a', expires_at: inSeconds(60 * 86_400) }, () => told++)
  vi.advanceTimersByTime(59 * 86_400_000)
  expect(told).toBe(0)
  vi.advanceTimersByTime(86_400_000 + 1)
  expect(told).toBe(1)
})

test('tells of a revocation whatever the expiry', () => {
  const lifetimes = createLifetimes()
  const told: string[] = []
  for (const expires_at of [null, inSeconds(100)])
    lifetimes.watch({ token_id: 'a', expires_at }, ({ message }) => told.push(message))
  lifetimes.watch({ token_id: null, expires_at: null }, () => told.push('nobody'))
  lifetimes.revoke(['a', 'z'])
  expect(told).toEqual(['the token was revoked', 'the token was revoked'])
})

test('a signal ends with the credential or with the one it came from', async () => {
  const lifetimes = createLifetimes()
  const caller = new AbortController()
  using first = whileValid(lifetimes, { token_id: 'a', expires_at: null }, caller.signal)
  using second = whileValid(lifetimes, { token_id: 'b', expires_at: null }, caller.signal)
  lifetimes.revoke(['a'])
  expect(first.signal.reason).toMatchObject({ kind: 'unauthenticated' })
  await expect(first.ended).rejects.toMatchObject({ kind: 'unauthenticated' })
  caller.abort('left')
  expect(second.signal.reason).toBe('left')
})
