// What `tools/list` shows to a scope. Model APIs refuse a top-level `oneOf`, so a unified tool is published as one flat
// object: `action` is an enum, every other field is optional and described with the actions that accept it. `door.ts` checks
// the input of each action strictly.
import { z } from 'zod'
import { couldAllow, type Scope } from '../auth/scope.ts'
import type { Action, ListedTool, Tool } from './tool.ts'

type Json = Record<string, unknown>
type Schema = {
  type: 'object'
  properties: Record<string, Json>
  required?: string[]
  [key: string]: unknown
}

const schemaOf = (object: z.ZodObject, io: 'input' | 'output'): Schema => {
  const { $schema: _, ...schema } = z.toJSONSchema(object, {
    io,
    unrepresentable: 'any',
    target: 'draft-2020-12',
  })
  return schema as Schema
}

const errorSchema = {
  type: 'object',
  description: 'Present only if the call failed.',
  properties: {
    kind: { type: 'string' },
    message: { type: 'string' },
    hint: { type: 'string' },
    id: { type: 'string' },
  },
}

type Variant = { actions: string[]; schema: Json; required: boolean[] }

/** The same field in several actions: one entry if they agree, else alternatives. */
function collect(schemas: [string, Schema][]): Map<string, Variant[]> {
  const fields = new Map<string, Variant[]>()
  for (const [name, schema] of schemas)
    for (const [field, described] of Object.entries(schema.properties ?? {})) {
      const variants = fields.get(field) ?? []
      fields.set(field, variants)
      const same = variants.find((variant) => JSON.stringify(variant.schema) === JSON.stringify(described))
      const required = schema.required?.includes(field) ?? false
      if (same) {
        same.actions.push(name)
        same.required.push(required)
      } else variants.push({ actions: [name], schema: described, required: [required] })
    }
  return fields
}

function describeField(variants: Variant[]): Json {
  const takers = variants.flatMap((variant) =>
    variant.actions.map((name, at) => (variant.required[at] ? `${name} (required)` : name)),
  )
  const texts = [...new Set(variants.map((variant) => variant.schema.description).filter(Boolean))]
  const description = `${texts.join(' / ')} [${takers.join(', ')}]`.trim()
  const bare = variants.map(({ schema: { description: _, default: __, ...rest } }) => rest)
  return bare.length === 1
    ? { ...variants[0]!.schema, description, default: undefined }
    : { anyOf: bare, description }
}

function flatInput(tool: Tool, actions: [string, Action][]): Schema {
  const fields = collect(actions.map(([name, action]) => [name, schemaOf(action.input, 'input')]))
  const lines = actions.map(([name, action]) => `${name}: ${action.about}`)
  const properties: Record<string, Json> = {
    action: { type: 'string', enum: actions.map(([name]) => name), description: lines.join('\n') },
  }
  for (const [field, variants] of fields)
    properties[field] = JSON.parse(JSON.stringify(describeField(variants)))
  return { type: 'object', properties, required: ['action'], additionalProperties: false, title: tool.name }
}

function flatOutput(actions: [string, Action][]): Schema {
  const properties: Record<string, Json> = {}
  for (const [field, variants] of collect(
    actions.map(([name, action]) => [name, schemaOf(action.output, 'output')]),
  )) {
    const bare = variants.map((variant) => variant.schema)
    properties[field] = bare.length === 1 ? bare[0]! : { anyOf: bare }
  }
  return { type: 'object', properties: { ...properties, error: errorSchema } }
}

export function listTool(tool: Tool, allowed: (action: Action) => boolean): ListedTool | undefined {
  const actions = Object.entries(tool.actions).filter(([, action]) => allowed(action))
  if (actions.length === 0) return undefined
  const every = (test: (action: Action) => boolean) => actions.every(([, action]) => test(action))
  const only = actions[0]![1]
  return {
    name: tool.name,
    description: tool.about,
    inputSchema: tool.unified ? flatInput(tool, actions) : schemaOf(only.input, 'input'),
    outputSchema: flatOutput(actions),
    annotations: {
      readOnlyHint: every((action) => action.needs.endsWith(':read')),
      destructiveHint: !every((action) => !action.destructive),
      idempotentHint: every((action) => action.idempotent),
      openWorldHint: false,
    },
  }
}

/** Prepared once for each of the four kinds of scope: a listing does not depend on which project it is. */
export function createListing(tools: Record<string, Tool>): (scope: Scope) => readonly ListedTool[] {
  const prepared = new Map<string, readonly ListedTool[]>()
  return (scope) => {
    const key = `${scope.kind}:${scope.read_only}`
    const known = prepared.get(key)
    if (known) return known
    const listed = Object.values(tools)
      .map((tool) => listTool(tool, (action) => couldAllow(scope, action.needs)))
      .filter((tool) => tool !== undefined)
    prepared.set(key, listed)
    return listed
  }
}
