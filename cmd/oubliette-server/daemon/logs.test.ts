import { expect, test } from 'vitest'
import { logLine } from '../tool-command/output/log-line.ts'
import { eventLine } from './logs.ts'

const at = '2026-01-02T03:04:05.678Z'
const time = new Date(at).toTimeString().slice(0, 8)

test('a line of the log is a time, a level, a message and its fields', () => {
  const line = JSON.stringify({
    at,
    level: 'warn',
    message: 'slow',
    url: 'http://x',
    n: 3,
    error: { message: 'a b' },
  })
  expect(logLine(line, false)).toBe(`${time} warn  slow url=http://x n=3 error="a b"`)
  expect(logLine(line, true)).toContain('\x1b[33mwarn ')
})

test('a line that is not JSON is kept, without control characters', () => {
  expect(logLine('Error: \x1b[31mno', false)).toBe('Error: no')
  expect(logLine('[1, 2]', false)).toBe('[1, 2]')
})

test('an event of a session is one line', () => {
  const line = (event: object) => eventLine({ index: 0, type: 'x', at, ...event }, false)
  expect(line({ type: 'status', status: 'failed', reason: 'no\nmemory' })).toBe(
    `${time} status       failed no memory`,
  )
  expect(line({ type: 'message', role: 'user', text: 'hello' })).toBe(`${time} message      hello`)
  expect(line({ type: 'plan' })).toBe(`${time} plan`)
})
