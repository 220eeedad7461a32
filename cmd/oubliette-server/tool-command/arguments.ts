// Parses the words after `./oubliette TOOL ACTION` into the arguments of a tool call. Words without a flag fill the positional
// fields in their order, then the optional text fields. All words after `--` fill the next field.
import { nearest } from '../../../internal/lib/nearest.ts'
import { Usage } from '../command.ts'
import { type Field, flagOf, parseValue } from './fields.ts'
import { type Format, formats } from './output/show.ts'

export type Parsed = {
  args: Record<string, unknown>
  help: boolean
  format: Format
  quiet: boolean
  /** All pages of a list. */
  all: boolean
}

/** `-o FORMAT`, `-oFORMAT`, `--output FORMAT`, `--output=FORMAT`; undefined if the word is another one. */
function formatOf(word: string, queue: string[]): Format | undefined {
  const given = /^(?:-o|--output)(?:=?(.+))?$/.exec(word)
  if (!given) return undefined
  const text = given[1] ?? queue.shift()
  const format = formats.find((known) => known === text)
  if (!format) throw new Usage(`invalid value "${text ?? ''}" for -o: expected ${formats.join(', ')}`)
  return format
}

/** Options of every tool command, unless the action has a field of that name. */
function takeShared(word: string, queue: string[], parsed: Parsed, fields: readonly Field[]): boolean {
  const isField = word.startsWith('--') && named(fields, word.slice(2).split('=')[0]!) !== undefined
  if (isField) return false
  const format = formatOf(word, queue)
  if (format) parsed.format = format
  else if (word === '--json') parsed.format = 'json'
  else if (word === '-q' || word === '--quiet') parsed.quiet = true
  else if (word === '--all') parsed.all = true
  else if (word === '--help' || word === '-h') parsed.help = true
  else return false
  return true
}

const named = (fields: readonly Field[], word: string): Field | undefined =>
  fields.find(({ name }) => name === word.replaceAll('-', '_'))

function lookUp(flag: string, fields: readonly Field[]): Field {
  const field = named(fields, flag.slice(2))
  if (field) return field
  const flags = fields.map(flagOf)
  const [near] = nearest(flag, flags)
  throw new Usage(
    `unknown option ${flag}`,
    near ? `did you mean ${near}?` : `options: ${flags.join(', ')}, -o, -q`,
  )
}

type Accepted = { fields: readonly Field[]; positional: readonly string[] }

export function parseArguments(words: string[], { fields, positional }: Accepted): Parsed {
  const args: Record<string, unknown> = {}
  const loose: string[] = []
  const parsed: Parsed = { args, help: false, format: 'table', quiet: false, all: false }
  const queue = [...words]
  let rest: string[] | undefined
  for (let word = queue.shift(); word !== undefined; word = queue.shift()) {
    if (word === '--') {
      rest = queue.splice(0)
    } else if (takeShared(word, queue, parsed, fields)) {
    } else if (word.startsWith('--')) {
      const at = word.indexOf('=')
      const flag = at < 0 ? word : word.slice(0, at)
      const negated = named(fields, flag.replace(/^--no-/, ''))
      if (at < 0 && flag.startsWith('--no-') && negated?.kinds.includes('boolean')) {
        args[negated.name] = false
        continue
      }
      const field = lookUp(flag, fields)
      if (at < 0 && field.kinds.includes('boolean') && queue[0] !== 'true' && queue[0] !== 'false') {
        args[field.name] = true
        continue
      }
      const text = at < 0 ? queue.shift() : word.slice(at + 1)
      if (text === undefined) throw new Usage(`option ${flag} requires a value`)
      args[field.name] = parseValue(field, text, args[field.name])
    } else loose.push(word)
  }
  if (parsed.help) return parsed
  fill(args, loose, rest, { fields, positional })
  return parsed
}

function fill(
  args: Record<string, unknown>,
  loose: string[],
  rest: string[] | undefined,
  { fields, positional }: Accepted,
): void {
  const absent = fields.filter((field) => !Object.hasOwn(args, field.name))
  const required = absent.filter((field) => field.required)
  const first = positional.flatMap((name) => absent.find((field) => field.name === name) ?? [])
  // With a project, a message goes to its latest session: the words do not name one.
  const named = first.filter(({ name }) => name !== 'session_id' || !Object.hasOwn(args, 'project_id'))
  const others = absent.filter((field) => !first.includes(field) && field.kinds.includes('string'))
  const open = [...named, ...others]
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
    args[field.name] = field.kinds.includes('array') ? rest : parseValue(field, rest.join(' '), undefined)
  }
  const missing = required.filter((field) => !Object.hasOwn(args, field.name))
  if (missing.length > 0)
    throw new Usage(`missing required ${missing.map(flagOf).join(', ')}`, 'see --help of this command')
}
