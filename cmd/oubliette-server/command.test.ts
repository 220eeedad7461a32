import { expect, test } from 'vitest'
import { nearest, options, Usage } from './command.ts'

test('a misspelt word yields the nearest known word, an unrelated one yields none', () => {
  const known = ['project', 'container', 'status', 'up']
  expect(nearest('projct', known)).toBe('project')
  expect(nearest('stauts', known)).toBe('status')
  expect(nearest('cont', known)).toBe('container')
  expect(nearest('xyzzy', known)).toBeUndefined()
})

test('an unknown option is a usage error with a message of one line', () => {
  expect(() => options(['--nope'], { detach: { type: 'boolean' } })).toThrow(Usage)
  expect(() => options(['--nope'], { detach: { type: 'boolean' } })).toThrow(/^Unknown option '--nope'$/)
})
