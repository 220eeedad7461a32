import { expect, it } from 'vitest'
import { limitOf } from './deadlines.ts'

it.each([
  ['an inspection', { method: 'GET', path: '/containers/x/json?' }, 30_000],
  ['a measurement', { method: 'GET', path: '/containers/x/json?', options: { size: true } }, 300_000],
  ['a start', { method: 'POST', path: '/containers/x/start?' }, 120_000],
  ['a stop with its grace', { method: 'POST', path: '/containers/x/stop?', options: { t: 300 } }, 360_000],
  ['a build, which goes by its output', { method: 'POST', path: '/build?' }, undefined],
  ['an upload', { method: 'POST', path: '/images/create?', file: {} }, undefined],
])('the deadline of %s', (_what, request, expected) => {
  expect(limitOf(request)).toBe(expected)
})
