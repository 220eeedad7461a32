import { Socket } from 'node:net'
import { expect, test } from 'vitest'
import { createConnections } from './http-connections.ts'

test('many requests ahead of the answers cost the container its connections, for a moment', () => {
  let now = 0
  const connections = createConnections(() => now)
  const [one, two, other] = [new Socket(), new Socket(), new Socket()]
  connections.add('a', one)
  connections.add('a', two)
  connections.add('b', other)
  for (let n = 0; n < 100; n++) connections.begin(one)?.()
  for (let n = 0; n < 4; n++)
    expect([connections.begin(one), connections.begin(other)]).toEqual([
      expect.any(Function),
      expect.any(Function),
    ])
  expect(connections.begin(one)).toBeUndefined()
  expect([one.destroyed, two.destroyed, other.destroyed]).toEqual([true, true, false])
  const [early, late] = [new Socket(), new Socket()]
  expect([connections.add('a', early), early.destroyed]).toEqual([false, true])
  now = 10_000
  expect([connections.add('a', late), late.destroyed]).toEqual([true, false])
  expect(connections.begin(new Socket())).toBeUndefined()
})
