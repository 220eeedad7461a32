import { countTokens } from 'gpt-tokenizer/encoding/o200k_base'
import { afterAll, describe, expect, it } from 'vitest'
import { parseScope } from '../auth/scope.ts'
import { exampleIds } from './declarations/fields.ts'
import { tools } from './declarations/index.ts'
import { createListing } from './listing.ts'
import { createSchemaCheck } from './schema/check.ts'
import type { ListedTool } from './tool.ts'

type Json = Record<string, unknown>
type Published = { type: string; properties: Record<string, Json>; required?: string[] }

const listing = createListing(tools)
const project = `project:${exampleIds.project_id}`
const scopes = ['admin', 'admin:ro', project, `${project}:ro`]
const admin = new Map(listing(parseScope('admin')).map((tool) => [tool.name, tool]))
const inputOf = (tool: ListedTool) => tool.inputSchema as Published
const check = createSchemaCheck()
afterAll(() => check.close())

const actions = Object.values(tools).flatMap((tool) =>
  Object.entries(tool.actions).map(([name, action]) => ({
    called: `${tool.name} ${name}`,
    tool,
    name,
    action,
  })),
)

function* schemasIn(schema: Json): Generator<Json> {
  yield schema
  const below = [
    ...Object.values((schema.properties ?? {}) as Record<string, Json>),
    ...((schema.anyOf ?? []) as Json[]),
    ...[schema.items, schema.additionalProperties].filter((one) => one !== undefined),
  ]
  for (const one of below) yield* schemasIn(one as Json)
}

/** The optional fields of an action, as a reader of the listing finds them. */
function acceptedBy(tool: string, action: string): string[] {
  const { properties } = inputOf(admin.get(tool)!)
  const lines = String(properties.action?.description).split('\n')
  const signature = /\(([^)]*)\)/.exec(lines.find((line) => new RegExp(`^${action}\\b`).test(line))!)?.[1]
  const others = /^Other options: (.*)$/.exec(lines.at(-1)!)?.[1]?.split(', ') ?? []
  const isListed = (field: string) => lines.some((line) => new RegExp(`\\b${field}\\?[,)]`).test(line))
  const named = signature?.split(', ').map((field) => field.replace('?', '')) ?? []
  const unnamed = Object.keys(properties).filter((field) => !isListed(field))
  const isOther = others.includes(action)
  const everywhere = unnamed.filter((field) => isShared(tool, field))
  return [...named, ...everywhere, 'limit', 'cursor', ...(isOther ? unnamed : [])]
}

const isShared = (tool: string, field: string) =>
  Object.values(tools[tool]!.actions).every(({ input }) => field in input.shape)

describe('the budget of the listing', () => {
  it.each([
    ['admin', 6000],
    [project, 3500],
  ])('for %s is at most %i tokens', (scope, most) => {
    expect(countTokens(JSON.stringify(listing(parseScope(scope))))).toBeLessThanOrEqual(most)
  })
})

// The rules of the strict check of the MCP Inspector (2.12.0), and what model APIs refuse.
it.each(scopes)('the listing for %s is portable', (scope) => {
  for (const tool of listing(parseScope(scope))) {
    const alternatives: string[] = []
    for (const schema of [...schemasIn(tool.inputSchema), ...schemasIn(tool.outputSchema)]) {
      expect(schema, `${tool.name}: a boolean schema`).toBeTypeOf('object')
      expect(Object.keys(schema), tool.name).toEqual(
        expect.arrayContaining([schema.anyOf === undefined ? 'type' : 'anyOf']),
      )
      if (schema.type !== undefined) expect(schema.type, tool.name).toBeTypeOf('string')
      if (schema.type === 'array') expect(schema, tool.name).toHaveProperty('items')
      for (const refused of ['pattern', '$ref', 'oneOf', 'allOf', 'not', 'format'])
        expect(schema, tool.name).not.toHaveProperty(refused)
      if (schema.anyOf) alternatives.push(JSON.stringify(schema.anyOf))
    }
    for (const schema of [inputOf(tool), tool.outputSchema]) expect(schema.type).toBe('object')
    expect(new Set(alternatives).size, `${tool.name}: a repeated anyOf`).toBe(alternatives.length)
  }
})

it.each(scopes)('the listing for %s states the purpose and the required fields of every action', (scope) => {
  for (const listed of listing(parseScope(scope))) {
    const tool = tools[listed.name]!
    expect(listed.description.length).toBeGreaterThan(10)
    const { properties, required } = inputOf(listed)
    const action = properties.action as { enum: string[]; description: string } | undefined
    const lines = new Map(action?.description.split('\n').map((line) => [/^\w+/.exec(line)?.[0], line]))
    for (const [name, declared] of Object.entries(tool.actions)) {
      if (action && !action.enum.includes(name)) continue
      const needed = Object.entries(declared.input.shape).flatMap(([field, schema]) =>
        schema.safeParse(undefined).success ? [] : [field],
      )
      for (const field of needed) expect(properties).toHaveProperty(field)
      if (!action) {
        expect(required).toEqual(needed)
        continue
      }
      const line = lines.get(name) ?? ''
      const [, signature = '', purpose = ''] = /^\w+(?:\(([^)]*)\))?: (.*)$/.exec(line) ?? []
      const named = signature.split(', ').filter((field) => field && !field.endsWith('?'))
      const always = required?.filter((field) => field !== 'action') ?? []
      expect(new Set([...always, ...named]), `${listed.name}: ${line}`).toEqual(new Set(needed))
      expect(purpose.length, `${listed.name}: ${line}`).toBeGreaterThan(10)
    }
  }
})

it.each(actions)(
  'the listing states the optional fields, defaults and limits of "$called"',
  ({ tool, name, action }) => {
    const { properties } = inputOf(admin.get(tool.name)!)
    for (const [field, schema] of Object.entries(action.input.shape)) {
      if (tool.unlisted.includes(field)) continue
      expect(properties).toHaveProperty(field)
      const optional = schema.safeParse(undefined).success
      if (tool.unified && optional) expect(acceptedBy(tool.name, name), `${name}.${field}`).toContain(field)
      const text = String(properties[field]?.description ?? '')
      const parsed = schema.safeParse(undefined)
      if (parsed.success && parsed.data !== undefined) expect(text).toContain(`default ${parsed.data}`)
      if (schema.safeParse(null).success && !schema.safeParse(0).success) expect(text).toContain('null')
      // Every maximum that the documentation states, as in "at most 2,000 characters" and "1 to 200".
      const documented = `${(schema as { description?: string }).description ?? ''}`
      for (const [, bound] of documented.matchAll(/(?:at most|up to|\d to) (\d[\d,]*)/g))
        expect(text.replaceAll(',', ''), `${name}.${field}`).toContain(
          bound!.replaceAll(',', '').replace(/,$/, ''),
        )
    }
  },
)

it('has no short text for a field that does not exist', () => {
  for (const tool of Object.values(tools)) {
    const fields = new Set(Object.values(tool.actions).flatMap(({ input }) => Object.keys(input.shape)))
    const shared = ['project_id', 'limit', 'cursor']
    const named = [
      ...Object.keys(tool.briefs).filter((name) => !shared.includes(name)),
      ...tool.unlisted,
      ...tool.admin_fields,
    ]
    expect(named.filter((name) => !fields.has(name))).toEqual([])
  }
})

it.each(actions)(
  'the example of "$called" is valid, and agrees with the published schema',
  async ({ tool, name, action }) => {
    expect(action.input.safeParse(action.example).error).toBeUndefined()
    const schema = admin.get(tool.name)!.inputSchema
    const sent = tool.unified ? { action: name, ...action.example } : action.example
    expect(await check.validate('test', schema, sent)).toBeUndefined()
    expect(Object.keys(inputOf(admin.get(tool.name)!).properties)).toEqual(
      expect.arrayContaining(Object.keys(sent)),
    )
    if (tool.unified) expect(await check.validate('test', schema, action.example)).toBeDefined()
  },
)

it.each([
  ['result', { sent: true }, true],
  ['result', 'a sentence', true],
  ['result', null, true],
  ['error', 'a sentence', true],
  ['error', { message: 'a sentence' }, true],
  ['request_id', null, false],
])('the published schema lets a caller answer with %s %j: %s', async (field, value, valid) => {
  const { input, example } = tools.caller_tool_response!.actions.caller_tool_response!
  const { session_id, request_id } = example as Json
  const answer = { session_id, request_id, [field]: value }
  const schema = admin.get('caller_tool_response')!.inputSchema
  expect([input.safeParse(answer).success, !(await check.validate('test', schema, answer))]).toEqual([
    valid,
    valid,
  ])
})

it('shows a project token no field that only an admin may set', () => {
  const own = inputOf(listing(parseScope(project)).find(({ name }) => name === 'project')!)
  expect(Object.keys(own.properties)).not.toContain('api_scope_grant')
  expect(Object.keys(inputOf(admin.get('project')!).properties)).toContain('api_scope_grant')
})
