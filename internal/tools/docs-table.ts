// A zod object as a Markdown table: one row per field, fields of objects below theirs as `outer.inner`.
import { z } from 'zod'

type Json = { [key: string]: unknown }
type Row = { name: string; type: string; default: string; text: string }

const quoted = (value: unknown) => `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``

function bounds(schema: Json): string {
  const huge = Number.MAX_SAFE_INTEGER
  const low = schema.minimum === -huge ? undefined : schema.minimum
  const high = schema.maximum === huge ? undefined : schema.maximum
  if (low !== undefined && high !== undefined) return ` ${low}…${high}`
  if (low !== undefined) return ` ≥ ${low}`
  return high === undefined ? '' : ` ≤ ${high}`
}

function typeOf(schema: Json): string {
  if (Array.isArray(schema.enum)) return schema.enum.map(quoted).join(' \\| ')
  if ('const' in schema) return quoted(schema.const)
  const any = (schema.anyOf ?? schema.oneOf) as Json[] | undefined
  if (any) return [...new Set(any.map(typeOf))].join(' \\| ')
  if (schema.type === 'array') return `list of ${typeOf((schema.items ?? {}) as Json)}`
  if (schema.type === 'object' && typeof schema.additionalProperties === 'object' && !schema.properties)
    return `map of ${typeOf(schema.additionalProperties as Json)}`
  if (schema.format === 'date-time') return 'time'
  if (schema.format === 'uri') return 'URL'
  return schema.type === undefined ? 'any' : `${String(schema.type)}${bounds(schema)}`
}

/** The object whose fields are listed below a field: itself, or the element of a list or map. */
function inner(schema: Json): { schema: Json; suffix: string } | undefined {
  if (schema.properties) return { schema, suffix: '' }
  const held = [
    [schema.items, '[]'],
    [schema.additionalProperties, '.<name>'],
  ] as const
  for (const [value, suffix] of held) {
    const below = value && typeof value === 'object' ? inner(value as Json) : undefined
    if (below) return { schema: below.schema, suffix: `${suffix}${below.suffix}` }
  }
  return undefined
}

function collect(schema: Json, prefix: string): Row[] {
  const required = new Set(schema.required as string[] | undefined)
  return Object.entries((schema.properties ?? {}) as Record<string, Json>).flatMap(([field, value]) => {
    const name = `${prefix}${field}`
    const below = inner(value)
    const own: Row = {
      name,
      type: typeOf(value),
      default:
        below || !('default' in value) ? (required.has(field) ? 'required' : '') : quoted(value.default),
      text: String(value.description ?? '').replaceAll('\n', ' '),
    }
    return [own, ...(below ? collect(below.schema, `${name}${below.suffix}.`) : [])]
  })
}

export const tableLines = (rows: string[][]) => rows.map((row) => `| ${row.join(' | ')} |`).join('\n')

export function fieldTable(object: z.ZodObject, io: 'input' | 'output'): string {
  const rows = collect(z.toJSONSchema(object, { io, unrepresentable: 'any' }) as Json, '')
  if (io === 'output') {
    const cells = rows.map((row) => [`\`${row.name}\``, row.type, row.text])
    return tableLines([['field', 'type', 'meaning'], ['---', '---', '---'], ...cells])
  }
  const cells = rows.map((row) => [`\`${row.name}\``, row.type, row.default, row.text])
  return tableLines([['field', 'type', 'default', 'meaning'], ['---', '---', '---', '---'], ...cells])
}
