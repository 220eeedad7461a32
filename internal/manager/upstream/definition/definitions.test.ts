import { expect, it } from 'vitest'
import type { UpstreamToolRow } from '../../../store/rows/upstream/tools.ts'
import { admissible, decide } from './definitions.ts'

const identity = { name: 'server', version: '1' }
const upstream = {
  id: 'ups_1',
  name: 'server',
  trusted: true,
  created_by: 'tok_1',
  settings: { transport: 'http' as const },
}
const read = {
  name: 'read_note',
  description: 'Reads one note.',
  inputSchema: { type: 'object' },
  annotations: { readOnlyHint: true },
}
const mail = { name: 'send_mail', description: 'Sends an e-mail.', inputSchema: { type: 'object' } }

/** As the database returns what was written. */
const stored = (rows: ReturnType<typeof decide>['changed']): UpstreamToolRow[] =>
  rows.map((row) => ({
    ...row,
    definition: JSON.parse(row.definition as string),
    approved_definition: row.approved_definition ? JSON.parse(row.approved_definition as string) : null,
    hidden_characters: [],
  })) as unknown as UpstreamToolRow[]
const statusesOf = ({ changed }: ReturnType<typeof decide>) =>
  Object.fromEntries(changed.map(({ name, status }) => [name, status]))

const first = stored(decide(upstream, true, identity, [read, mail], []).changed)

it('approves the first list of a trusted server only', () => {
  expect(first.map(({ status, approved_by }) => [status, approved_by])).toEqual([
    ['approved', 'tok_1'],
    ['approved', 'tok_1'],
  ])
  expect(statusesOf(decide({ ...upstream, trusted: false }, true, identity, [read], []))).toEqual({
    read_note: 'pending',
  })
})

it('writes nothing for a list that did not change', () => {
  expect(decide(upstream, false, identity, [mail, read], first)).toEqual({ changed: [], absent: [] })
})

it('quarantines every tool of a server that calls itself otherwise', () => {
  expect(statusesOf(decide(upstream, false, { name: 'other', version: '1' }, [read, mail], first))).toEqual({
    read_note: 'changed',
    send_mail: 'changed',
  })
})

it('approves a new tool that only reads where the settings say so, and no other', () => {
  const automatic = { ...upstream, settings: { ...upstream.settings, auto_approve: 'read_only' as const } }
  const look = {
    name: 'look',
    description: 'Looks around in the garden.',
    inputSchema: { type: 'object' },
    annotations: { readOnlyHint: true },
  }
  const dig = { name: 'dig', description: 'Digs a hole somewhere.', inputSchema: { type: 'object' } }
  expect(statusesOf(decide(automatic, false, identity, [read, mail, look, dig], first))).toEqual({
    look: 'approved',
    dig: 'pending',
  })
  expect(statusesOf(decide(upstream, false, identity, [read, mail, look], first))).toEqual({
    look: 'pending',
  })
  // A changed tool is never approved by itself.
  const changed = { ...read, description: 'Reads all your notes.' }
  expect(statusesOf(decide(automatic, false, identity, [changed, mail], first))).toEqual({
    read_note: 'changed',
  })
})

it('counts a renamed tool as changed, and keeps the vanished one', () => {
  const renamed = { ...read, name: 'read_note_now' }
  const { changed, absent } = decide(upstream, false, identity, [renamed, mail], first)
  expect(changed).toMatchObject([{ name: 'read_note_now', status: 'changed', resembles: 'read_note' }])
  expect(absent).toEqual(['read_note'])
})

it('leaves out what cannot be stored or is too much', () => {
  const many = Array.from({ length: 1005 }, (_, at) => ({ ...read, name: `tool_${at}` }))
  expect(admissible(many).tools).toHaveLength(1000)
  const bad = [
    { ...read, description: '\0' },
    { ...read, name: '' },
    { ...read, inputSchema: { type: 'array' } },
    { ...read, description: 'x'.repeat(70_000) },
  ]
  expect(admissible(bad)).toMatchObject({ tools: [], skipped: { length: 4 } })
})
