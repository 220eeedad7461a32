import fc from 'fast-check'
import { expect, test } from 'vitest'
import { shortDiff } from './diff.ts'

const shown = (before: string, after: string, rows = 100) =>
  shortDiff(before, after, rows).rows.map(({ sign, text }) => `${sign}${text}`)

test('only changed lines and their neighbours are shown', () => {
  const lines = Array.from({ length: 20 }, (_, at) => `${at}`)
  const changed = lines.map((line) => (line === '3' || line === '15' ? `${line}!` : line))
  expect(shown(lines.join('\n'), changed.join('\n'))).toEqual([
    ' 2',
    '-3',
    '+3!',
    ' 4',
    '⋯',
    ' 14',
    '-15',
    '+15!',
    ' 16',
  ])
  expect(shown('', 'a\nb\n')).toEqual(['+a', '+b'])
  expect(shown('a\n', '')).toEqual(['-a'])
  expect(shown('same', 'same')).toEqual([])
})

test('applying all rows of a diff gives the new text', () => {
  const text = fc
    .array(fc.constantFrom('a', 'b', 'c', ''), { maxLength: 12 })
    .map((lines) => lines.join('\n'))
  fc.assert(
    fc.property(text, text, (before, after) => {
      const { added, removed, rows } = shortDiff(before, after, 1000)
      const count = (value: string) =>
        value === '' ? 0 : value.split('\n').length - (value.endsWith('\n') ? 1 : 0)
      expect(added - removed).toBe(count(after) - count(before))
      expect(rows.filter(({ sign }) => sign === '+')).toHaveLength(added)
      expect(rows.filter(({ sign }) => sign === '-')).toHaveLength(removed)
    }),
  )
})
