import { expect, test } from 'vitest'
import { endedFromOutside } from './ending.ts'

const kill = (signal: string) => ({ Action: 'kill', Actor: { Attributes: { signal } } })
const start = { Action: 'start' }

test.each([
  ['nothing but its start', [start], false],
  ['a signal that ends it', [start, kill('15')], true],
  ['a stop whose grace is over', [start, kill('15'), kill('9')], true],
  ['a signal that does not end it', [start, kill('10')], false],
  ['a removal', [start, { Action: 'destroy' }], true],
  ['a signal of an earlier life', [start, kill('9'), start], false],
])('after %s', (_, events, expected) => {
  expect(endedFromOutside(events)).toBe(expected)
})
