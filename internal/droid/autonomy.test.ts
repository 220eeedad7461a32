import { expect, test } from 'vitest'
import { decide, optionFor } from './autonomy.ts'

const options = [
  { optionId: 'a', name: 'Always', kind: 'allow_always' },
  { optionId: 'o', name: 'Once', kind: 'allow_once' },
  { optionId: 'n', name: 'No', kind: 'reject_once' },
]

test.each([
  ['off', 'read', 'ask'],
  ['off', 'edit', 'ask'],
  ['low', 'read', 'allow'],
  ['low', 'execute', 'ask'],
  ['low', undefined, 'ask'],
  ['medium', 'search', 'allow'],
  ['medium', 'delete', 'ask'],
  ['medium', 'fetch', 'ask'],
  ['high', 'delete', 'allow'],
  ['high', undefined, 'allow'],
] as const)('autonomy %s and a tool of kind %s: %s', (autonomy, kind, decision) => {
  expect(decide(autonomy, kind)).toBe(decision)
})

test('an answer becomes the narrowest option of the agent that says so', () => {
  expect(optionFor({ outcome: 'allow' }, options)).toBe('o')
  expect(optionFor({ outcome: 'deny' }, options)).toBe('n')
  expect(optionFor({ outcome: 'selected', option_id: 'a' }, options)).toBe('a')
  expect(optionFor({ outcome: 'selected', option_id: 'other' }, options)).toBeUndefined()
  expect(optionFor({ outcome: 'cancelled' }, options)).toBeUndefined()
  expect(optionFor({ outcome: 'deny' }, options.slice(0, 2))).toBeUndefined()
})
