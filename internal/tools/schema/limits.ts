// What a schema of a caller may be: bounded in size, depth and number, and closed in itself. Names that reach beyond the
// schema (`$id`, anchors, references to other documents) are refused, so that no schema can change what another means.
import { Fault } from '../../fault.ts'

export const schemaLimits = { bytes: 128 * 1024, depth: 32, values: 5_000 } as const

export type Schema = Record<string, unknown>

/** Keywords whose value is data, not a schema. */
const data = new Set([
  'const',
  'default',
  'enum',
  'example',
  'examples',
  'required',
  'type',
  'dependentRequired',
])
/** Keywords whose value maps names, which are no keywords, to schemas. */
const named = new Set([
  '$defs',
  'definitions',
  'dependencies',
  'dependentSchemas',
  'patternProperties',
  'properties',
])
const refused = new Set([
  '$id',
  'id',
  '$anchor',
  '$dynamicAnchor',
  '$dynamicRef',
  '$recursiveAnchor',
  '$recursiveRef',
])

const refuse = (problem: string) => new Fault('invalid', problem)
const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

function checkKeyword(key: string, value: unknown): void {
  // `id` was a keyword before draft 6 and is often a leftover; as anything but text it means nothing.
  if (refused.has(key) && (key !== 'id' || typeof value === 'string'))
    throw refuse(`${key} is not supported: a schema must stand by itself`)
  if (key === '$ref' && !(typeof value === 'string' && (value === '#' || value.startsWith('#/'))))
    throw refuse('$ref must refer to a place in the same schema (#/…)')
}

/** Its JSON text, which is its identity. Throws `invalid` with what is wrong. The `$id` of the whole schema is left out. */
export function checkSchema(given: Schema): { schema: Schema; text: string } {
  const { $id: _, ...schema } = given
  let values = 0

  const count = (value: unknown, depth: number): void => {
    values += 1
    if (values > schemaLimits.values) throw refuse(`it has more than ${schemaLimits.values} values`)
    if (depth > schemaLimits.depth && isObject(value))
      throw refuse(`it is nested more than ${schemaLimits.depth} deep`)
  }
  const walkData = (value: unknown, depth: number): void => {
    count(value, depth)
    if (isObject(value)) for (const inner of Object.values(value)) walkData(inner, depth + 1)
  }
  const walkEach = (value: object, depth: number): void => {
    count(value, depth)
    for (const inner of Object.values(value)) walk(inner, depth + 1)
  }
  const walk = (value: unknown, depth: number): void => {
    if (Array.isArray(value)) walkEach(value, depth)
    else count(value, depth)
    if (!isObject(value) || Array.isArray(value)) return
    for (const [key, inner] of Object.entries(value)) {
      checkKeyword(key, inner)
      if (data.has(key)) walkData(inner, depth + 1)
      else if (named.has(key) && isObject(inner)) walkEach(inner, depth + 1)
      else walk(inner, depth + 1)
    }
  }

  walk(schema, 0)
  const text = JSON.stringify(schema)
  if (Buffer.byteLength(text) > schemaLimits.bytes)
    throw refuse(`it is larger than ${schemaLimits.bytes} bytes`)
  return { schema, text }
}
