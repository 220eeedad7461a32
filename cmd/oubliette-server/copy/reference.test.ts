import { expect, test } from 'vitest'
import { isContents, parseReference, splitPath } from './reference.ts'

test.each([
  ['site:src/a.txt', { kind: 'remote', project: 'site', workspace: 'default', path: 'src/a.txt' }],
  ['site/review:a:b', { kind: 'remote', project: 'site', workspace: 'review', path: 'a:b' }],
  ['site:', { kind: 'remote', project: 'site', workspace: 'default', path: '.' }],
  ['./a:b', { kind: 'local', path: './a:b' }],
  ['/tmp/a:b', { kind: 'local', path: '/tmp/a:b' }],
  ['a.txt', { kind: 'local', path: 'a.txt' }],
  ['-', { kind: 'stream' }],
])('%s', (word, reference) => {
  expect(parseReference(word)).toEqual(reference)
})

test.each(['', ':x', 'a/:x', 'a/b/c:x'])('"%s" is refused', (word) => {
  expect(() => parseReference(word)).toThrow()
})

test.each([
  ['a', '.', 'a'],
  ['a/b/', 'a', 'b'],
  ['/a', '/', 'a'],
])('%s is %s and %s', (path, parent, name) => {
  expect(splitPath(path)).toEqual({ parent, name })
})

test('the contents of a directory', () => {
  expect(['.', 'a/.', './.'].map(isContents)).toEqual([true, true, true])
  expect(['a', 'a.', '..', 'a/'].map(isContents)).toEqual([false, false, false, false])
})
