import { describe, expect, it } from 'vitest'
import { endedFromOutside, nanosecondsOf, toEvent } from './events.ts'

const died = {
  Action: 'die',
  Actor: { ID: 'c1', Attributes: { 'oubliette.project': 'p1', exitCode: '137', image: 'x' } },
}

describe('engine events', () => {
  it('are told in our words, with the exit code where there is one', () => {
    expect(toEvent(died)).toEqual({ project_id: 'p1', container_id: 'c1', action: 'die', exit_code: 137 })
    expect(
      toEvent({ ...died, Action: 'start', Actor: { ID: 'c1', Attributes: { 'oubliette.project': 'p1' } } }),
    ).toEqual({
      project_id: 'p1',
      container_id: 'c1',
      action: 'start',
    })
  })

  it('of other kinds or without a project are left out', () => {
    expect(toEvent({ ...died, Action: 'exec_start: sh' })).toBeUndefined()
    expect(toEvent({ ...died, Actor: { ID: 'c1', Attributes: {} } })).toBeUndefined()
    const upstream = { 'oubliette.project': 'p1', 'oubliette.upstream': 'u1' }
    expect(toEvent({ ...died, Actor: { ID: 'c1', Attributes: upstream } })).toBeUndefined()
  })

  it('keep their time to the nanosecond, or one would be missed or told twice', () => {
    expect(nanosecondsOf('{"time":1767312000,"timeNano":1767312000123456789}')).toBe(1767312000123456789n)
  })
})

const kill = (signal: string) => ({ Action: 'kill', Actor: { Attributes: { signal } } })
const start = { Action: 'start' }

it.each([
  ['nothing but its start', [start], false],
  ['a signal that ends it', [start, kill('15')], true],
  ['a stop whose grace is over', [start, kill('15'), kill('9')], true],
  ['a signal that does not end it', [start, kill('10')], false],
  ['a removal', [start, { Action: 'destroy' }], true],
  ['a signal of an earlier life', [start, kill('9'), start], false],
])('after %s', (_, events, expected) => {
  expect(endedFromOutside(events)).toBe(expected)
})
