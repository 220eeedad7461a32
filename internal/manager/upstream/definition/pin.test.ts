import { expect, it } from 'vitest'
import { differences, hiddenCharacters, pinOf, resembles } from './pin.ts'

const tool = {
  name: 'read_file',
  title: 'Read',
  description: 'Reads a file from the disk.',
  inputSchema: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
  outputSchema: { type: 'object' },
  annotations: { readOnlyHint: true },
}
const server = { name: 'files', version: '1.0.0' }

it('does not depend on the order of keys or on the version of the server', () => {
  const { name, ...rest } = tool
  expect(pinOf({ ...rest, name }, server)).toBe(pinOf(tool, { name: 'files' }))
})

it.each([
  ['description', 'Reads a file from the disk. '],
  ['title', 'Reads'],
  ['annotations', { readOnlyHint: true, destructiveHint: true }],
  ['inputSchema', { ...tool.inputSchema, required: [] }],
  ['outputSchema', undefined],
  ['name', 'read_files'],
])('changes with %s', (field, value) => {
  expect(pinOf({ ...tool, [field]: value }, server)).not.toBe(pinOf(tool, server))
})

it('changes with the name of the server', () => {
  expect(pinOf(tool, { name: 'other' })).not.toBe(pinOf(tool, server))
})

it('names what differs', () => {
  const after = {
    ...tool,
    description: 'Sends a file.',
    inputSchema: { ...tool.inputSchema, properties: { path: { type: 'string' }, to: { type: 'string' } } },
  }
  expect(differences(tool, after)).toEqual([
    { field: 'description', before: tool.description, after: 'Sends a file.' },
    { field: 'inputSchema.properties.to', before: null, after: { type: 'string' } },
  ])
})

it.each([
  ['\u200b', 'U+200B', 'zero-width character'],
  ['\u202e', 'U+202E', 'bidirectional control'],
  ['\u{e0041}', 'U+E0041', 'tag character'],
  ['\u{e0101}', 'U+E0101', 'variation selector'],
  ['\u001b', 'U+001B', 'control character'],
])('finds %j in descriptions, schemas and names of fields', (character, code_point, name) => {
  const hidden = {
    ...tool,
    description: `Reads${character} a file${character}.`,
    inputSchema: {
      type: 'object',
      properties: { [`pa${character}th`]: { type: 'string', description: `x${character}` } },
    },
  }
  const found = hiddenCharacters(hidden)
  expect(found).toContainEqual({ path: 'description', code_point, name, count: 2 })
  expect(found.map(({ path }) => path)).toContain('inputSchema.properties (name of a field)')
})

it('finds nothing in ordinary text of any language', () => {
  expect(hiddenCharacters(tool)).toEqual([])
  expect(hiddenCharacters({ ...tool, description: 'Grüße, 日本語, 👩‍💻 ❤️‍🔥 ok\n\tשלום' })).toEqual([])
})

it('recognises a renamed tool, and no other', () => {
  expect(resembles(tool, { ...tool, name: 'read_file_v2' })).toBe(true)
  expect(resembles(tool, { ...tool, name: 'fetch', description: 'Reads a file from disk, quickly' })).toBe(
    true,
  )
  expect(
    resembles(tool, {
      name: 'send_mail',
      description: 'Sends an e-mail to somebody.',
      inputSchema: { type: 'object', properties: { to: {}, text: {} } },
    }),
  ).toBe(false)
  expect(
    resembles(
      { name: 'ping', description: 'Checks the connection.', inputSchema: { type: 'object' } },
      { name: 'whoami', description: 'Names the user.', inputSchema: { type: 'object' } },
    ),
  ).toBe(false)
})
