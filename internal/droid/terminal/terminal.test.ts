import { expect, test } from 'vitest'
import { knownTerm, openTerminal, ptsOf } from './terminal.ts'

test.each([
  [136 << 8, '/dev/pts/0'],
  [(136 << 8) | 7, '/dev/pts/7'],
  [(137 << 8) | 1, '/dev/pts/257'],
  // Minor numbers above 255 continue after the major number.
  [(136 << 8) | (1 << 20), '/dev/pts/256'],
  [0, undefined],
  [4 << 8, undefined],
])('device %d is %s', (device, path) => {
  expect(ptsOf(device)).toBe(path)
})

test('a type of terminal that is not installed is replaced', () => {
  expect(knownTerm('xterm-256color')).toBe('xterm-256color')
  expect(knownTerm('no-such-terminal')).toBe('xterm-256color')
})

test('an image without the programs of a terminal gets a clear error', async () => {
  const command = { terminal_id: 'term_x', key: 'k', working_dir: '/', term: 'xterm', rows: 24, cols: 80 }
  const place = { socket: '/nowhere', env: { PATH: '/nowhere' }, signal: new AbortController().signal }
  await expect(openTerminal(command, place)).rejects.toMatchObject({
    kind: 'conflict',
    message: 'the image of the container has no "script", which a terminal needs',
  })
})
