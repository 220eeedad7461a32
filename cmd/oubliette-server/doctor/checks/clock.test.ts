import { expect, test } from 'vitest'
import { judgeClock, skewMs } from './services.ts'

const asked_ms = 1_000_000
const clock = (at_ms: number, took_ms = 100) => ({ at_ms, asked_ms, answered_ms: asked_ms + took_ms })

test('the time that an answer took is no skew', () => {
  expect(skewMs(clock(asked_ms + 50))).toBe(0)
  expect(skewMs(clock(asked_ms + 5_000, 5_000))).toBe(0)
  expect(skewMs(clock(asked_ms + 5_100, 100))).toBe(5_000)
  expect(skewMs(clock(asked_ms - 3_000))).toBe(-3_000)
})

test('a skew of seconds is a warning, of minutes a problem', () => {
  expect(judgeClock('engine', clock(asked_ms + 1_900))).toBeUndefined()
  expect(judgeClock('engine', clock(asked_ms - 3_000))).toMatchObject({
    status: 'warning',
    message: 'the clock of the engine is 3.0 s behind this machine',
  })
  expect(judgeClock('database', clock(asked_ms + 61_100))).toMatchObject({
    status: 'problem',
    message: 'the clock of the database is 61.0 s ahead of this machine',
  })
})
