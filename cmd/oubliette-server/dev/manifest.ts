// Generates the manifest of the command line from the tool declarations.
import { z } from 'zod'
import type { Tool } from '../../../internal/tools/tool.ts'
import { type Field, flagOf, type Kind } from '../tool-command/fields.ts'
import { calledAs, type Manifest } from '../tool-command/manifest.ts'

type Json = { [key: string]: unknown }

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

function fieldsIn(schema: Json): Field[] {
  const required = new Set(Array.isArray(schema.required) ? schema.required : [])
  return Object.entries((schema.properties ?? {}) as Record<string, Json>).map(([name, described]) => ({
    name,
    kinds: [...new Set(kindsOf(described))],
    required: required.has(name),
    description: [
      described.description,
      described.default === undefined || /\bdefaults?\b/i.test(String(described.description))
        ? ''
        : `(default ${JSON.stringify(described.default)})`,
    ]
      .filter(Boolean)
      .join(' '),
    choices: Array.isArray(described.enum) ? described.enum.map(String) : [],
    inner: fieldsIn((described.items ?? described) as Json),
  }))
}

export const fieldsOf = (input: z.ZodObject): Field[] =>
  fieldsIn(z.toJSONSchema(input, { io: 'input', unrepresentable: 'any' }))

/** Where the example of a tool has an id, a person types a name. */
const namedProject = 'site'

/** A value of an example as a word of a shell: ids are variables, and one object in a list is written as key=value. */
function wordOf(name: string, value: unknown): string {
  if (name === 'project_id') return namedProject
  if (name.endsWith('_id') && name !== 'workspace_id') return `$${name.toUpperCase()}`
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  if (!Array.isArray(value)) return /^[\w.:-]+$/.test(text) ? text : `'${text}'`
  const pairs = value.flatMap((item) => Object.entries(item as object))
  return pairs.map(([key, inner]) => `${key}=${wordOf(key, inner)}`).join(',')
}

/** Actions whose words are not the required fields in the order of their declaration. */
const positionals: Record<string, string[]> = { 'session message': ['session_id', 'message'] }

const positionalOf = (called: string, fields: Field[]): string[] =>
  positionals[called] ?? fields.filter((field) => field.required).map(({ name }) => name)

function exampleOf(called: string, fields: Field[], example: Record<string, unknown>): string {
  const positional = positionalOf(called, fields)
  const words = positional.map((name) => wordOf(name, example[name]))
  const flags = fields
    .filter(({ name }) => Object.hasOwn(example, name) && !positional.includes(name))
    .map((field) => `${flagOf(field)} ${wordOf(field.name, example[field.name])}`)
  return [`./oubliette ${called}`, ...words, ...flags].join(' ')
}

export function manifestOf(tools: Record<string, Tool>): Manifest {
  return Object.fromEntries(
    Object.values(tools).map((tool) => {
      const actions = Object.entries(tool.actions).map(([name, action]) => {
        const fields = fieldsOf(action.input)
        const called = calledAs(tool, name)
        const [example, positional] = [
          exampleOf(called, fields, action.example),
          positionalOf(called, fields),
        ]
        return [name, { about: action.about, example, positional, fields }]
      })
      const { name, about, unified } = tool
      return [name, { name, about, unified, actions: Object.fromEntries(actions) }]
    }),
  )
}

/** One line per field, so that changes can be reviewed. */
export function manifestText(tools: Record<string, Tool>): string {
  const lines = Object.values(manifestOf(tools)).map(({ actions, ...tool }) => {
    const entries = Object.entries(actions).map(([name, { fields, ...action }]) => {
      const listed = fields.map((field) => `\n      ${JSON.stringify(field)}`).join(',')
      return `    ${JSON.stringify(name)}: ${JSON.stringify(action).slice(0, -1)}, "fields": [${listed}]}`
    })
    return `  ${JSON.stringify(tool.name)}: ${JSON.stringify(tool).slice(0, -1)}, "actions": {\n${entries.join(',\n')}\n  }}`
  })
  return `{\n${lines.join(',\n')}\n}\n`
}
