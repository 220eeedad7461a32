import { execFileSync } from 'node:child_process'
import { PassThrough, Readable } from 'node:stream'
import { expect, test } from 'vitest'
import { combine, readInput, readPrompt } from './prompt.ts'

const read = (words: string[], input?: string) => {
  const said: string[] = []
  const stdin = Readable.from(input === undefined ? [] : [Buffer.from(input)])
  return readPrompt(words, { stdin, piped: input !== undefined, warn: (text) => said.push(text) })
}

test('the prompt comes from the words, from standard input, or from both', async () => {
  expect(await read(['echo', 'hi'])).toEqual({ prompt: 'echo hi' })
  expect(await read(['-'], 'from stdin\n')).toEqual({ prompt: 'from stdin\n' })
  expect(await read([], 'from a pipe\n')).toEqual({ prompt: 'from a pipe\n' })
  expect(await read(['review this'], 'diff')).toEqual({ prompt: 'review this', input: 'diff' })
  expect(await read(['review this'], '')).toEqual({ prompt: 'review this' })
})

test('a missing, empty, binary or endless prompt is refused', async () => {
  await expect(read([])).rejects.toThrow('missing PROMPT')
  await expect(read(['  '])).rejects.toThrow('missing PROMPT')
  await expect(read([], ' \n')).rejects.toThrow('is empty')
  await expect(readInput(Readable.from([Buffer.from([0xff, 0xfe])]))).rejects.toThrow('not UTF-8')
  const endless = Readable.from(
    (function* () {
      for (;;) yield Buffer.alloc(1_000_000, 'x')
    })(),
  )
  await expect(readInput(endless)).rejects.toThrow('longer than 2,000,000 characters')
  await expect(read(['x'.repeat(1_500_000)], 'y'.repeat(600_000))).rejects.toThrow('longer than')
})

test('a pipe that says nothing is not waited for', async () => {
  expect(await readInput(new PassThrough(), 20)).toBeUndefined()
})

test('piped text follows the prompt of an agent, and is the standard input of a script', () => {
  expect(combine('review this', 'diff', 'claude')).toBe('review this\n\ndiff')
  const input = "a $HOME `id` 'b'\nOUBLIETTE_\nlast"
  const script = combine('cat; echo end', input, 'shell')
  expect(execFileSync('bash', ['-c', script], { encoding: 'utf8' })).toBe(`${input}\nend\n`)
})
