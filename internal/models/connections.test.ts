import { Socket } from 'node:net'
import { expect, test } from 'vitest'
import { createConnections } from './connections.ts'

test('a second request before the first is answered costs the container its connections, for a moment', () => {
  let now = 0
  const connections = createConnections(() => now)
  const [one, two, other] = [new Socket(), new Socket(), new Socket()]
  connections.add('a', one)
  connections.add('a', two)
  connections.add('b', other)
  const end = connections.begin(one)
  end?.()
  expect(connections.begin(one)).toBeDefined()
  expect(connections.begin(other)).toBeDefined()
  expect(connections.begin(one)).toBeUndefined()
  expect([one.destroyed, two.destroyed, other.destroyed]).toEqual([true, true, false])
  const [early, late] = [new Socket(), new Socket()]
  expect([connections.add('a', early), early.destroyed]).toEqual([false, true])
  now = 10_000
  expect([connections.add('a', late), late.destroyed]).toEqual([true, false])
  expect(connections.begin(new Socket())).toBeUndefined()
})
