import { expect, test } from 'vitest'
import type { Fields } from '../log.ts'
import { createThrottledWarn } from './throttled-log.ts'

test('what is said often is said once in a while, with how many were left out; others are not hidden', () => {
  let now = 0
  const lines: [string, Fields | undefined][] = []
  const warn = createThrottledWarn(
    { warn: (message, fields) => void lines.push([message, fields]) },
    () => now,
  )
  for (let n = 0; n < 5; n++) warn('a', 'ended', { n })
  warn('b', 'ended', { n: 9 })
  warn('a', 'refused', {})
  now = 10_000
  warn('a', 'ended', { n: 5 })
  now = 20_000
  warn('a', 'ended', { n: 6 })
  expect(lines).toEqual([
    ['ended', { n: 0 }],
    ['ended', { n: 9 }],
    ['refused', {}],
    ['ended', { n: 5, left_out: 4 }],
    ['ended', { n: 6 }],
  ])
})
