import { expect, test } from 'vitest'
import { options, Usage } from './command.ts'

test('an unknown option is a usage error with a message of one line', () => {
  expect(() => options(['--nope'], { detach: { type: 'boolean' } })).toThrow(Usage)
  expect(() => options(['--nope'], { detach: { type: 'boolean' } })).toThrow(/^Unknown option '--nope'$/)
})
