import { expect, test } from 'vitest'
import { createHolds } from './body.ts'

test('what the requests of one container hold together is bounded, and given back', () => {
  const holds = createHolds(10)
  const first = holds('a')
  first.add(6)
  {
    using second = holds('a')
    second.add(4)
    expect(() => second.add(1)).toThrow('exceed')
    holds('b').add(10)
  }
  first.add(4)
  expect(() => holds('a').add(1)).toThrow('exceed')
})
