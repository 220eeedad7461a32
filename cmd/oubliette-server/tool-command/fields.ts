// The input schema of an action as command-line flags: the kinds of value that each field accepts, and the conversion of
// text into a value. The server validates the value, as for every other caller.
import { z } from 'zod'
import { Usage } from '../command.ts'

type Kind = 'string' | 'number' | 'boolean' | 'array' | 'object' | 'json'
type Json = { [key: string]: unknown }

export type Field = {
  name: string
  kinds: ReadonlySet<Kind>
  required: boolean
  description: string
  choices: string[]
  /** Known keys of an object, or of the objects of a list, so that `--limits memory_mb=512` becomes a number. */
  inner: Map<string, Field>
}

function kindsOf(schema: Json): Kind[] {
  const alternatives = [schema.anyOf, schema.oneOf, schema.allOf].find(Array.isArray) as Json[] | undefined
  if (alternatives) return alternatives.flatMap(kindsOf)
  if (schema.type === undefined && schema.enum === undefined && schema.const === undefined) return ['json']
  const types = Array.isArray(schema.type) ? schema.type : [schema.type]
  return types.flatMap((type): Kind[] => {
    if (type === 'integer' || type === 'number') return ['number']
    if (type === 'boolean' || type === 'array' || type === 'object') return [type]
    return type === 'null' ? [] : ['string']
  })
}

function fieldsIn(schema: Json): Map<string, Field> {
  const required = new Set(Array.isArray(schema.required) ? schema.required : [])
  const fields = new Map<string, Field>()
  for (const [name, described] of Object.entries((schema.properties ?? {}) as Record<string, Json>))
    fields.set(name, {
      name,
      kinds: new Set(kindsOf(described)),
      required: required.has(name),
      description: [
        described.description,
        described.default === undefined ? '' : `(default ${JSON.stringify(described.default)})`,
      ]
        .filter(Boolean)
        .join(' '),
      choices: Array.isArray(described.enum) ? described.enum.map(String) : [],
      inner: fieldsIn((described.items ?? described) as Json),
    })
  return fields
}

export const fieldsOf = (input: z.ZodObject): Map<string, Field> =>
  fieldsIn(z.toJSONSchema(input, { io: 'input', unrepresentable: 'any' }))

const invalid = (flag: string, text: string, expected: string) =>
  new Usage(`invalid value "${text.slice(0, 80)}" for ${flag}: ${expected}`)

function parseJson(flag: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw invalid(flag, text, 'expected JSON')
  }
}

/** For fields that accept any value: text that is not JSON is a string. */
function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** An item of a list of objects: JSON, or `key=value,key=value`. */
function parseItem(field: Field, text: string): unknown {
  const one: Field = { ...field, kinds: new Set(['object']) }
  if (text.startsWith('{')) return parseValue(one, text, undefined)
  return text.split(',').reduce<unknown>((item, pair) => parseValue(one, pair, item), undefined)
}

/** Converts one word for a field; `before` is the value from earlier words for the same field. */
export function parseValue(field: Field, text: string, before: unknown): unknown {
  const flag = flagOf(field)
  if (field.kinds.has('array') && !field.kinds.has('string')) {
    const earlier = Array.isArray(before) ? before : []
    if (text.startsWith('[')) return parseJson(flag, text)
    return [...earlier, field.inner.size > 0 ? parseItem(field, text) : text]
  }
  if (before !== undefined && !field.kinds.has('object'))
    throw new Usage(`option ${flag} was given more than once`)
  if (field.kinds.has('string')) return text
  if (field.kinds.has('json')) return jsonOrText(text)
  if (field.kinds.has('number')) {
    const number = Number(text)
    if (text.trim() === '' || Number.isNaN(number)) throw invalid(flag, text, 'expected a number')
    return number
  }
  if (field.kinds.has('boolean')) {
    if (text !== 'true' && text !== 'false') throw invalid(flag, text, 'expected true or false')
    return text === 'true'
  }
  if (text.startsWith('{')) return parseJson(flag, text)
  const [key = '', ...rest] = text.split('=')
  if (rest.length === 0) throw invalid(flag, text, 'expected JSON or key=value')
  const inner = field.inner.get(key)
  const value = inner ? parseValue(inner, rest.join('='), undefined) : rest.join('=')
  return { ...(typeof before === 'object' ? before : {}), [key]: value }
}

export const flagOf = (field: Field): string => `--${field.name.replaceAll('_', '-')}`
