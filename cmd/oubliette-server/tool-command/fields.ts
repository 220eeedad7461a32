// The fields of an action as command-line flags: the kinds of value that each field accepts, and the conversion of text
// into a value. The server validates the value, as for every other caller.
import { Usage } from '../command.ts'

export type Kind = 'string' | 'number' | 'boolean' | 'array' | 'object' | 'json'

export type Field = {
  name: string
  kinds: Kind[]
  required: boolean
  description: string
  choices: string[]
  /** Known keys of an object, or of the objects of a list, so that `--limits memory_mb=512` becomes a number. */
  inner: Field[]
}

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

/** An item of a list of objects: JSON, `key=value,key=value`, or the value of the first key alone. */
function parseItem(field: Field, text: string): unknown {
  const one: Field = { ...field, kinds: ['object'] }
  if (text.startsWith('{')) return parseValue(one, text, undefined)
  const [first] = field.inner
  if (first && !text.includes('=')) return { [first.name]: text }
  return text.split(',').reduce<unknown>((item, pair) => parseValue(one, pair, item), undefined)
}

/** Converts one word for a field; `before` is the value from earlier words for the same field. */
export function parseValue(field: Field, text: string, before: unknown): unknown {
  const flag = flagOf(field)
  if (field.kinds.includes('array') && !field.kinds.includes('string')) {
    const earlier = Array.isArray(before) ? before : []
    if (text.startsWith('[')) return parseJson(flag, text)
    return [...earlier, field.inner.length > 0 ? parseItem(field, text) : text]
  }
  if (before !== undefined && !field.kinds.includes('object'))
    throw new Usage(`option ${flag} was given more than once`)
  if (field.kinds.includes('string')) return text
  if (field.kinds.includes('json')) return jsonOrText(text)
  if (field.kinds.includes('number')) {
    const number = Number(text)
    if (text.trim() === '' || Number.isNaN(number)) throw invalid(flag, text, 'expected a number')
    return number
  }
  if (field.kinds.includes('boolean')) {
    if (text !== 'true' && text !== 'false') throw invalid(flag, text, 'expected true or false')
    return text === 'true'
  }
  if (text.startsWith('{')) return parseJson(flag, text)
  const [key = '', ...rest] = text.split('=')
  if (rest.length === 0) throw invalid(flag, text, 'expected JSON or key=value')
  const inner = field.inner.find(({ name }) => name === key)
  const value = inner ? parseValue(inner, rest.join('='), undefined) : rest.join('=')
  return { ...(typeof before === 'object' ? before : {}), [key]: value }
}

export const flagOf = (field: Field): string => `--${field.name.replaceAll('_', '-')}`
