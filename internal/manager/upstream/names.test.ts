import fc from 'fast-check'
import { expect, it } from 'vitest'
import { isAllowed, matches, visibleName } from './names.ts'

it.each([
  ['files', 'read_file', 'mcp__files__read_file'],
  ['git-hub', 'list-Issues', 'mcp__git-hub__list-Issues'],
])('keeps the names of %s %s', (server, tool, name) => {
  expect(visibleName(server, tool)).toBe(name)
})

it.each([
  ['My Server!', 'do it'],
  ['a__b', 'c'],
  ['a', '_b'],
  ['x', 'y'.repeat(100)],
  ['日本', '読む'],
  ['..', '…'],
])('makes %j %j safe and stable', (server, tool) => {
  const name = visibleName(server, tool)
  expect(name).toMatch(/^mcp__[A-Za-z0-9_-]{1,59}$/)
  expect(visibleName(server, tool)).toBe(name)
})

it('never gives two tools one name', () => {
  const part = fc.oneof(
    fc.string({ minLength: 1, maxLength: 90 }),
    fc.string({ minLength: 1, maxLength: 6, unit: fc.constantFrom('a', '_', '-', '.', 'b') }),
  )
  fc.assert(
    fc.property(part, part, part, part, (server, tool, otherServer, otherTool) => {
      fc.pre(server !== otherServer || tool !== otherTool)
      const name = visibleName(server, tool)
      expect(name.length).toBeLessThanOrEqual(64)
      expect(visibleName(otherServer, otherTool)).not.toBe(name)
    }),
    { numRuns: 3000 },
  )
})

it('gives a tool that imitates a generated name another one', () => {
  const generated = visibleName('a.b', 'read it')
  const imitated = generated.slice('mcp__a_b__'.length)
  expect(visibleName('a_b', imitated)).not.toBe(generated)
})

it.each([
  ['read_*', 'read_file', true],
  ['read_*', 'write_file', false],
  ['*', 'x', true],
  ['*_file', 'read_file', true],
  ['a*b*c', 'a1b2c', true],
  ['a*b*c', 'acb', false],
  ['ab*ba', 'aba', false],
  ['a.b', 'axb', false],
])('%s and %s: %s', (pattern, name, expected) => {
  expect(matches(pattern, name)).toBe(expected)
})

it('denies what both lists name', () => {
  expect(isAllowed({ allow: ['a*'], deny: ['ab'] }, 'ab')).toBe(false)
  expect(isAllowed({ allow: ['a*'] }, 'b')).toBe(false)
  expect(isAllowed({}, 'b')).toBe(true)
})
