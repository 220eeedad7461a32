import { expect, test } from 'vitest'
import { knownTerm, ptsOf } from './terminal.ts'

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
