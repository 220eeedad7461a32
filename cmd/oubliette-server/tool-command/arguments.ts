// Parses the words after `./oubliette TOOL ACTION` into the arguments of a tool call. Words without a flag fill the required
// fields in the order of their declaration, then the optional text fields. All words after `--` fill the next field.
import { nearest, Usage } from '../command.ts'
import { type Field, flagOf, parseValue } from './fields.ts'

export type Parsed = { args: Record<string, unknown>; json: boolean; help: boolean }

function lookUp(flag: string, fields: Map<string, Field>): Field {
  const field = fields.get(flag.slice(2).replaceAll('-', '_'))
  if (field) return field
  const flags = [...fields.values()].map(flagOf)
  const near = nearest(flag, flags)
  throw new Usage(
    `unknown option ${flag}`,
    near ? `did you mean ${near}?` : `options: ${flags.join(', ')}, --json`,
  )
}

export function parseArguments(words: string[], fields: Map<string, Field>): Parsed {
  const args: Record<string, unknown> = {}
  const loose: string[] = []
  const parsed = { args, json: false, help: false }
  const queue = [...words]
  let rest: string[] | undefined
  for (let word = queue.shift(); word !== undefined; word = queue.shift()) {
    if (word === '--') {
      rest = queue.splice(0)
    } else if (word === '--json' && !fields.has('json')) {
      parsed.json = true
    } else if (word === '--help' || word === '-h') {
      parsed.help = true
    } else if (word.startsWith('--')) {
      const at = word.indexOf('=')
      const flag = at < 0 ? word : word.slice(0, at)
      const negated = fields.get(flag.replace(/^--no-/, '').replaceAll('-', '_'))
      if (at < 0 && flag.startsWith('--no-') && negated?.kinds.has('boolean')) {
        args[negated.name] = false
        continue
      }
      const field = lookUp(flag, fields)
      if (at < 0 && field.kinds.has('boolean') && queue[0] !== 'true' && queue[0] !== 'false') {
        args[field.name] = true
        continue
      }
      const text = at < 0 ? queue.shift() : word.slice(at + 1)
      if (text === undefined) throw new Usage(`option ${flag} requires a value`)
      args[field.name] = parseValue(field, text, args[field.name])
    } else loose.push(word)
  }
  if (parsed.help) return parsed
  fill(args, loose, rest, fields)
  return parsed
}

function fill(
  args: Record<string, unknown>,
  loose: string[],
  rest: string[] | undefined,
  fields: Map<string, Field>,
): void {
  const absent = [...fields.values()].filter((field) => !Object.hasOwn(args, field.name))
  const required = absent.filter((field) => field.required)
  const open = [...required, ...absent.filter((field) => !field.required && field.kinds.has('string'))]
  for (const word of loose) {
    if (/^-./.test(word))
      throw new Usage(`unknown option ${word}`, 'put -- before a command that has its own options')
    const field = open.shift()
    if (!field) throw new Usage(`unexpected argument "${word}"`, 'see --help of this command')
    args[field.name] = parseValue(field, word, undefined)
  }
  if (rest) {
    const field = open.shift()
    if (!field) throw new Usage('unexpected arguments after --', 'see --help of this command')
    args[field.name] = field.kinds.has('array') ? rest : parseValue(field, rest.join(' '), undefined)
  }
  const missing = required.filter((field) => !Object.hasOwn(args, field.name))
  if (missing.length > 0)
    throw new Usage(`missing required ${missing.map(flagOf).join(', ')}`, 'see --help of this command')
}
