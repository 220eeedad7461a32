import { expect, test } from 'vitest'
import { allPages, newest } from './fetch.ts'
import { lists } from './output/lists.ts'

const list = lists['project list']!
const rows = Array.from({ length: 5 }, (_, day) => ({
  name: `p${day}`,
  created_at: `2026-01-0${day + 1}T00:00:00Z`,
}))

test('all pages of a list are one result, the newest rows first', async () => {
  const asked: unknown[] = []
  const call = async (args: Record<string, unknown>) => {
    asked.push(args)
    const from = Number(args.cursor ?? 0)
    const next_cursor = from + 2 < rows.length ? String(from + 2) : null
    return { projects: rows.slice(from, from + 2), next_cursor }
  }
  const all = await allPages(call, { name_contains: 'p' }, list)
  expect(all).toEqual({ projects: rows, next_cursor: null })
  expect(asked).toEqual([
    { name_contains: 'p', limit: 200 },
    { name_contains: 'p', limit: 200, cursor: '2' },
    { name_contains: 'p', limit: 200, cursor: '4' },
  ])
  const { result, more } = newest(all, list, 2)
  expect(result.projects).toEqual([rows[4], rows[3]])
  expect(more).toBe(3)
})
