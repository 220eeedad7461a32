import { expect, test } from 'vitest'
import { checkDeclaration } from './caller-tools.ts'

const schema = () => () => undefined
const tool = (name: string, inputSchema: Record<string, unknown> = { type: 'object' }) => ({
  name,
  description: '',
  inputSchema,
})

test('a plain declaration is fine', () => {
  expect(() =>
    checkDeclaration({ caller_id: 'app', tools: [tool('greet'), tool('notify')] }, schema),
  ).not.toThrow()
})

test.each([
  ['oubliette', 'x', /taken by Oubliette/],
  ['mcp_a', 'x', /taken by Oubliette/],
  ['Oubliette_x', 'x', /taken by Oubliette/],
  ['app', 'x'.repeat(64), /longer than 64/],
])('caller %s cannot offer a tool like %s', (caller_id, name, words) => {
  expect(() => checkDeclaration({ caller_id, tools: [tool(name)] }, schema)).toThrow(words)
})

test('the same tool twice is refused', () => {
  expect(() => checkDeclaration({ caller_id: 'app', tools: [tool('a'), tool('a')] }, schema)).toThrow(/twice/)
})

test('a schema that is none is refused when it is declared', () => {
  expect(() =>
    checkDeclaration({ caller_id: 'app', tools: [tool('a', { type: 'string' })] }, schema),
  ).toThrow(/must have type "object"/)
  const broken = () => {
    throw new Error('unknown keyword')
  }
  expect(() => checkDeclaration({ caller_id: 'app', tools: [tool('a')] }, broken)).toThrow(
    /is not a JSON schema: unknown keyword/,
  )
})
