import { expect, test } from 'vitest'
import { exitCodeOf, isTurnOver } from './events.ts'

test('the exit code is that of the script, or reports whether the agent ended its turn', () => {
  const completion = (more: object) => exitCodeOf({ index: 1, type: 'completion', ...more })
  expect(completion({ exit_code: 7, stop_reason: 'error' })).toBe(7)
  expect(completion({ exit_code: 0, stop_reason: 'end_turn' })).toBe(0)
  expect(completion({ stop_reason: 'end_turn' })).toBe(0)
  expect(completion({ stop_reason: 'refusal' })).toBe(1)
  expect(exitCodeOf({ index: 1, type: 'status', status: 'failed' })).toBe(1)
})

test('a turn ends with its completion or with the session', () => {
  expect(isTurnOver({ index: 1, type: 'completion', turn_id: 'a' }, 'a')).toBe(true)
  expect(isTurnOver({ index: 1, type: 'completion', turn_id: 'b' }, 'a')).toBe(false)
  expect(isTurnOver({ index: 1, type: 'status', status: 'failed' }, 'a')).toBe(true)
  expect(isTurnOver({ index: 1, type: 'status', status: 'idle' }, 'a')).toBe(false)
})
