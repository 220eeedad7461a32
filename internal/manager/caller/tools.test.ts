import { expect, test } from 'vitest'
import { Fault } from '../../fault.ts'
import { checkDeclaration, type SchemaCheck } from './tools.ts'

const lenient: SchemaCheck = { declare: async () => undefined, validate: () => undefined }
const tool = (name: string, inputSchema: Record<string, unknown> = { type: 'object' }) => ({
  name,
  description: '',
  inputSchema,
})
const check = (caller_id: string, tools: ReturnType<typeof tool>[], schema = lenient) =>
  checkDeclaration({ caller_id, tools }, 'p', schema)

test('a plain declaration is fine', async () => {
  await check('app', [tool('greet'), tool('notify')])
})

test.each([
  ['oubliette', 'x', /is reserved/],
  ['mcp_a', 'x', /is reserved/],
  ['Oubliette_x', 'x', /is reserved/],
  ['app', 'x'.repeat(64), /longer than 64/],
])('caller %s cannot offer a tool like %s', async (caller_id, name, words) => {
  await expect(check(caller_id, [tool(name)])).rejects.toThrow(words)
})

test('the same tool twice is refused', async () => {
  await expect(check('app', [tool('a'), tool('a')])).rejects.toThrow(/twice/)
})

test('a schema that cannot be used is named by its place', async () => {
  await expect(check('app', [tool('a'), tool('b', { type: 'string' })])).rejects.toThrow(
    'caller_tools[1].inputSchema: must have type "object"',
  )
  const broken = {
    ...lenient,
    declare: () => Promise.reject(new Fault('invalid', 'is not a JSON schema: x')),
  }
  await expect(check('app', [tool('a')], broken)).rejects.toThrow(
    'caller_tools[0].inputSchema: is not a JSON schema: x',
  )
})

test('a declaration that is too large is refused', async () => {
  const large = tool('a', { type: 'object', description: 'x'.repeat(1024 * 1024) })
  await expect(check('app', [large])).rejects.toThrow(/larger than 1048576 bytes/)
})
