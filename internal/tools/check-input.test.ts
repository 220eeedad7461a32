import { expect, test } from 'vitest'
import { checkText } from './check-input.ts'

test('what no row can hold is refused, wherever it stands', () => {
  expect(() => checkText({ a: [{ b: 'x\0y' }] })).toThrow('a.0.b contains a NUL character')
  expect(() => checkText({ a: '\ud800' })).toThrow('a contains half of a surrogate pair')
  expect(() => checkText({ 'a\0': 1 })).toThrow(/field name/)
  expect(() => checkText({ a: 'fine 🎉', b: null, c: [1, true] })).not.toThrow()
})

test('nesting has an end', () => {
  let deep: unknown = 'x'
  for (let i = 0; i < 70; i++) deep = [deep]
  expect(() => checkText({ deep })).toThrow(/nested more than 64 levels deep/)
})
