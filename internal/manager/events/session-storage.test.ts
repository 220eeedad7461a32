import { expect, test } from 'vitest'
import { fullEvents, limitBytes, nearlyFull, storedSize } from './session-storage.ts'

test('counts bytes, not characters, and something for the row', () => {
  expect(storedSize('"€"') - storedSize('""')).toBe(3)
  expect(storedSize('{}')).toBeGreaterThan(50)
})

test("takes the project's limit before the config's", () => {
  expect(limitBytes(2, { session_mb: null })).toBe(2 * 1024 * 1024)
  expect(limitBytes(2, { session_mb: 1 })).toBe(1024 * 1024)
})

test('warns once, when the warning mark is passed', () => {
  expect(nearlyFull(0, 79, 100)).toEqual([])
  expect(nearlyFull(79, 81, 100)).toMatchObject([{ type: 'warning' }])
  expect(nearlyFull(81, 90, 100)).toEqual([])
})

test('ends a live session, and only reports dropped events of one that has ended', () => {
  expect(fullEvents({ status: 'running' }, 1024 * 1024).map(({ type }) => type)).toEqual(['error', 'status'])
  expect(fullEvents({ status: 'completed' }, 1024 * 1024).map(({ type }) => type)).toEqual(['error'])
})
