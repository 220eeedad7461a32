// The input of a tool as `tools/list` publishes it: short enough to be part of every prompt, and portable between model
// APIs, which refuse a top-level `oneOf`, look-ahead in patterns, or a list of types. Types and enums are JSON Schema;
// bounds, defaults and the fields of nested objects are text, generated from the declaration. A unified tool is one flat
// object: `action` is an enum whose description has one line per action with its fields, as in `get(session_id, wait?)`.
// `door.ts` checks the input of each action strictly.
import { z } from 'zod'
import type { Action, Tool } from './tool.ts'

type Json = Record<string, unknown>
export type ObjectSchema = { type: 'object'; properties?: Record<string, Json>; [key: string]: unknown }
type Taker = { action: string; schema: Json; required: boolean }

const unique = <T>(values: T[]): T[] => [
  ...new Map(values.map((value) => [JSON.stringify(value), value])).values(),
]

/** The alternatives of a schema; a nullable string has two. */
function alternatives(schema: Json): Json[] {
  if (Array.isArray(schema.type)) return schema.type.map((type) => ({ ...schema, type }))
  const any = (schema.anyOf ?? schema.oneOf) as Json[] | undefined
  return any ? any.flatMap(alternatives) : [schema]
}

/** Of values that may be any JSON. A schema without a type is not portable, and every other value fits into an object. */
const anyJson = ['object', 'string', 'null'].map((type) => ({ type }))

/**
 * What a client needs in order to send a value of the right type. The server accepts more: null where it removes a
 * setting, which the text names, and any JSON where an object is published.
 */
function bare(schema: Json): Json {
  if (Array.isArray(schema.enum)) return { type: 'string', enum: schema.enum }
  if (schema.type !== 'array') return { type: schema.type ?? 'object' }
  return { type: 'array', items: oneOf(alternatives((schema.items ?? {}) as Json).map(bare)) }
}

/** The alternatives of a field, of which null is one only where any JSON is accepted. */
function published(schema: Json): Json[] {
  const types = alternatives(schema)
  if (types.length === 1 && types[0]!.type === undefined && !types[0]!.enum) return anyJson
  return types.filter((type) => type.type !== 'null').map(bare)
}

function oneOf(schemas: Json[]): Json {
  const distinct = unique(schemas)
  const has = (type: string) => distinct.some((schema) => schema.type === type)
  const left = distinct.filter((schema) => schema.type !== 'integer' || !has('number'))
  return left.length === 1 ? left[0]! : { anyOf: left }
}

/** A bound is published if the description states it: `at most 2,000 characters` becomes `≤2000 chars`. */
function boundsOf(schema: Json, description: string): string {
  const stated = (bound: unknown) =>
    typeof bound === 'number' && description.split(/[^\d.,-]/).some((word) => toNumber(word) === bound)
  const range = (low: unknown, high: unknown, unit = '') => {
    // A lower bound of 0 or 1 goes without saying.
    if (stated(high)) return `${stated(low) && Number(low) > 1 ? `${low}–` : '≤'}${high}${unit}`
    return stated(low) ? `≥${low}${unit}` : ''
  }
  if (schema.type === 'string') return range(undefined, schema.maxLength, ' chars')
  if (schema.type === 'array') return range(schema.minItems, schema.maxItems, ' items')
  return range(schema.minimum, schema.maximum)
}

const toNumber = (word: string) =>
  /\d/.test(word) ? Number(word.replace(/[,.]+$/, '').replaceAll(',', '')) : undefined

function allBounds(schema: Json): string {
  const description = String(schema.description ?? '')
  return unique(alternatives(schema).map((one) => boundsOf(one, description)))
    .filter(Boolean)
    .join(' or ')
}

const defaultOf = (schema: Json) => (schema.default === undefined ? '' : `default ${plain(schema.default)}`)

const joined = (one: string, two: string, by: string) => [one, two].filter(Boolean).join(by)

const plain = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))

/** `{name, encoding? utf8|base64=utf8}` of an object, or of the objects of a list. */
function shapeOf(schema: Json): string {
  const { properties, required } = (schema.items ?? schema) as { properties?: Json; required?: string[] }
  if (!properties) return ''
  const fields = Object.entries(properties as Record<string, Json>).map(([name, field]) => {
    const values = Array.isArray(field.enum) ? ` ${field.enum.join('|')}` : ''
    return `${name}${required?.includes(name) ? '' : '?'}${values}`
  })
  return required ? `{${fields.join(', ')}}` : `any of {${fields.join(', ').replaceAll('?', '')}}`
}

/** Text for each group of actions that agree; without the names of the actions if all that have one do. */
function byAction(takers: Taker[], text: (schema: Json) => string): string {
  const groups = [...Map.groupBy(takers, ({ schema }) => text(schema))].filter(([said]) => said)
  if (groups.length <= 1) return groups[0]?.[0] ?? ''
  return groups.map(([said, group]) => `${namesOf(group)}: ${said}`).join('; ')
}

function publish(takers: Taker[], brief: string | undefined): Json {
  const texts = unique(takers.map(({ schema }) => schema.description as string | undefined)).filter(Boolean)
  const apart = joined(byAction(takers, allBounds), byAction(takers, defaultOf), '; ')
  const together = byAction(takers, (schema) => joined(allBounds(schema), defaultOf(schema), ', '))
  const limits = together.length > apart.length ? apart : together
  const description = [
    brief ?? texts.join(' / '),
    ...unique(takers.flatMap(({ schema }) => alternatives(schema).map(shapeOf))),
    limits,
  ]
    .filter(Boolean)
    .join('; ')
  const type = oneOf(takers.flatMap(({ schema }) => published(schema)))
  return description ? { ...type, description } : type
}

function schemaOf(input: z.ZodObject): { properties: Record<string, Json>; required: Set<string> } {
  const { properties = {}, required = [] } = z.toJSONSchema(input, { io: 'input', unrepresentable: 'any' })
  return { properties: properties as Record<string, Json>, required: new Set(required) }
}

function takersOf(actions: [string, Action][], hidden: string[]): Map<string, Taker[]> {
  const fields = new Map<string, Taker[]>()
  for (const [action, { input }] of actions) {
    const { properties, required } = schemaOf(input)
    for (const [name, schema] of Object.entries(properties).filter(([name]) => !hidden.includes(name)))
      fields.set(name, [...(fields.get(name) ?? []), { action, schema, required: required.has(name) }])
  }
  return fields
}

const namesOf = (takers: Taker[]) => takers.map(({ action }) => action).join(', ')
const optionalOf = (takers: Taker[]) => takers.filter(({ required }) => !required)

/** The actions that share most optional fields: said once, instead of with each of those fields. */
function usualTakers(fields: Map<string, Taker[]>): string {
  const shared = [...fields.values()].filter((takers) => optionalOf(takers).length > 0)
  const groups = [...Map.groupBy(shared, namesOf)].filter(([, group]) => group.length > 2)
  return groups.sort(([, a], [, b]) => b.length - a.length)[0]?.[0] ?? ''
}

/** `get(session_id, wait_seconds?)` and what it does; without the fields of `unnamed`. */
function lineOf([name, action]: [string, Action], fields: Map<string, Taker[]>, unnamed: Unnamed): string {
  const own = [...fields].flatMap(([field, takers]) => {
    const taker = takers.find((one) => one.action === name)
    return taker && !unnamed(field, taker) ? [{ field, required: taker.required }] : []
  })
  const named = own
    .sort((a, b) => Number(b.required) - Number(a.required))
    .map(({ field, required }) => (required ? field : `${field}?`))
  return `${name}${named.length > 0 ? `(${named.join(', ')})` : ''}: ${action.brief ?? action.about}`
}

type Unnamed = (field: string, taker: Taker) => boolean

/** Only lists have pages, and a reader knows it. */
const paging = ['limit', 'cursor']

function flatInput(tool: Tool, actions: [string, Action][], hidden: string[]): ObjectSchema {
  const fields = takersOf(actions, hidden)
  const usual = usualTakers(fields)
  const required = [...fields.keys()].filter(
    (field) => fields.get(field)!.filter((taker) => taker.required).length === actions.length,
  )
  const unnamed: Unnamed = (field, taker) => {
    if (taker.required) return required.includes(field)
    const takers = fields.get(field)!
    const isEverywhere = optionalOf(takers).length === actions.length
    return isEverywhere || namesOf(takers) === usual || paging.includes(field)
  }
  const lines = actions.map((one) => lineOf(one, fields, unnamed))
  const properties: Record<string, Json> = {
    action: {
      type: 'string',
      enum: actions.map(([name]) => name),
      description: [...lines, ...(usual ? [`Other options: ${usual}`] : [])].join('\n'),
    },
  }
  for (const [name, takers] of fields) properties[name] = publish(takers, tool.briefs[name])
  return { type: 'object', properties, required: ['action', ...required] }
}

function standaloneInput(tool: Tool, actions: [string, Action][], hidden: string[]): ObjectSchema {
  const fields = [...takersOf(actions, hidden)]
  const required = fields.filter(([, takers]) => optionalOf(takers).length === 0).map(([name]) => name)
  const properties = fields.map(([name, takers]) => [name, publish(takers, tool.briefs[name])])
  return { type: 'object', properties: Object.fromEntries(properties), required }
}

/** The input of the given actions of a tool, without the hidden fields. */
export const listedInput = (tool: Tool, actions: [string, Action][], hidden: string[]): ObjectSchema =>
  tool.unified ? flatInput(tool, actions, hidden) : standaloneInput(tool, actions, hidden)
