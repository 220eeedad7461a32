import { expect, test } from 'vitest'
import { treeOrder } from './agents.ts'

const row = (id: string, parent_session_id: string | null = null) => ({ id, parent_session_id })
const ids = (rows: { id: string }[]) => treeOrder(rows as ReturnType<typeof row>[]).map(({ id }) => id)

test('each session is followed by its children, in the order of the rows', () => {
  const rows = [row('a'), row('b'), row('a1', 'a'), row('b1', 'b'), row('a2', 'a'), row('a1x', 'a1')]
  expect(ids(rows)).toEqual(['a', 'a1', 'a1x', 'a2', 'b', 'b1'])
})

test('a session whose parent is not listed is a root', () => {
  expect(ids([row('x', 'gone'), row('x1', 'x')])).toEqual(['x', 'x1'])
})

test('a chain of 10,000 sessions does not overflow the stack', () => {
  const rows = Array.from({ length: 10_000 }, (_, at) => row(`s${at}`, at === 0 ? null : `s${at - 1}`))
  expect(ids(rows)).toEqual(rows.map(({ id }) => id))
})
