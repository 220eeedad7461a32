import { expect, test } from 'vitest'
import { readCursor, toPage } from './page.ts'

const rows = ['a', 'b', 'c'].map((id) => ({ id, at: '2026-01-01T00:00:00.000001Z' }))

test('a full page has a cursor to the next one', () => {
  const page = toPage(rows, 2, (row) => row)
  expect(page.items.map(({ id }) => id)).toEqual(['a', 'b'])
  expect(readCursor(page.next_cursor!)).toEqual({ id: 'b', at: '2026-01-01T00:00:00.000001Z' })
  expect(toPage(rows, 3, (row) => row).next_cursor).toBeNull()
})

test.each([
  'x',
  'bnVsbA',
  Buffer.from('["x","y"]').toString('base64url'),
  Buffer.from('{}').toString('base64url'),
])('"%s" is no cursor', (cursor) => {
  expect(() => readCursor(cursor)).toThrow(/cursor is invalid/)
})
