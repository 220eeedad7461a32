import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { helpText, options, Usage } from './command.ts'
import { overviewFile } from './commands.ts'
import { overviewText } from './dev/docs.ts'

test('the list of commands matches the commands', async () => {
  expect(readFileSync(overviewFile, 'utf8'), 'run ./oubliette docs').toBe(await overviewText())
})

test('a help text is wrapped, and an example that is too long continues on the next line', () => {
  const text = helpText('thing', {
    about: 'word '.repeat(40).trim(),
    usage: '',
    examples: [`./oubliette thing ${'--option value '.repeat(6)}'one argument with spaces'`],
  })
  for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  expect(text).toMatch(/ \\\n {4}value .*'one argument with spaces'/)
})

test('an unknown option is a usage error with a message of one line', () => {
  expect(() => options(['--nope'], { detach: { type: 'boolean' } })).toThrow(Usage)
  expect(() => options(['--nope'], { detach: { type: 'boolean' } })).toThrow(/^Unknown option '--nope'$/)
})
