// Checks a value against a schema in time that is linear in the value, whatever the schema says. That is possible for
// schemas in which each value is looked at by one subschema only and each keyword costs no more than reading the value:
// no regular expressions, formats, references, alternatives, or comparisons of whole structures. Most tools have such a
// schema. The answers are those of ajv, in its words.
import type { Schema } from './limits.ts'

/** What is wrong with the value, or nothing. */
export type Check = (value: unknown) => string | undefined

type Run = { path: (string | number)[]; problems: string[] }
type Rule = (value: unknown, run: Run) => void

const mostProblems = 5
const ignored = new Set([
  '$comment',
  '$defs',
  'default',
  'definitions',
  'deprecated',
  'description',
  'example',
  'examples',
  'readOnly',
  'title',
  'writeOnly',
])
const dialect = /^https?:\/\/json-schema\.org\/draft(-0[67]|\/2019-09|\/2020-12)\/schema#?$/

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isFiniteNumber = (value: unknown): value is number =>
  typeof value === 'number' && Number.isFinite(value)
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0
const isPlain = (value: unknown): boolean => value === null || typeof value !== 'object'

const types: Record<string, (value: unknown) => boolean> = {
  string: (value) => typeof value === 'string',
  number: isFiniteNumber,
  integer: (value) => isFiniteNumber(value) && value % 1 === 0,
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
}

function report({ path, problems }: Run, problem: string): void {
  const where = path.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
  problems.push(`data${where.length > 200 ? `${where.slice(0, 200)}…` : where} ${problem}`)
}

/** Characters, not UTF-16 units; counted only when the number of units leaves it open. */
function characters(text: string): number {
  let count = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit >= 0xd800 && unit <= 0xdbff && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00) at++
    count += 1
  }
  return count
}

const numeric =
  (holds: (value: number, limit: number) => boolean, words: string) =>
  (limit: unknown): Rule | undefined =>
    isFiniteNumber(limit)
      ? (value, run) => {
          if (isFiniteNumber(value) && !holds(value, limit)) report(run, `must be ${words} ${limit}`)
        }
      : undefined

const sized =
  (sizeOf: (value: unknown) => number | undefined, least: boolean, unit: string) =>
  (limit: unknown): Rule | undefined =>
    isCount(limit)
      ? (value, run) => {
          const size = sizeOf(value)
          if (size !== undefined && (least ? size < limit : size > limit))
            report(run, `must NOT have ${least ? 'fewer' : 'more'} than ${limit} ${unit}`)
        }
      : undefined

const lengthOf = (value: unknown) => (typeof value === 'string' ? characters(value) : undefined)
const itemsOf = (value: unknown) => (Array.isArray(value) ? value.length : undefined)
const propertiesOf = (value: unknown) => (isObject(value) ? Object.keys(value).length : undefined)

/** Each gives nothing for what it cannot hold to: that schema is left to ajv. */
const keywords: Record<string, (given: unknown) => Rule | undefined> = {
  type(given) {
    const names = Array.isArray(given) ? given : [given]
    if (names.length === 0 || !names.every((name) => typeof name === 'string' && Object.hasOwn(types, name)))
      return undefined
    const tests = [...new Set(names as string[])].map((name) => types[name]!)
    return (value, run) => {
      if (!tests.some((test) => test(value))) report(run, `must be ${names.join(',')}`)
    }
  },
  enum(given) {
    if (!Array.isArray(given) || given.length === 0 || !given.every(isPlain)) return undefined
    const allowed = new Set(given)
    return (value, run) => {
      if (!allowed.has(value)) report(run, 'must be equal to one of the allowed values')
    }
  },
  const(given) {
    if (!isPlain(given)) return undefined
    return (value, run) => {
      if (value !== given) report(run, 'must be equal to constant')
    }
  },
  required(given) {
    if (!Array.isArray(given) || !given.every((name) => typeof name === 'string')) return undefined
    const names = [...new Set(given as string[])]
    return (value, run) => {
      if (!isObject(value)) return
      // One that is missing is enough, so that the cost is bounded by the properties that are there.
      const missing = names.find((name) => !Object.hasOwn(value, name))
      if (missing !== undefined) report(run, `must have required property '${missing}'`)
    }
  },
  minimum: numeric((value, limit) => value >= limit, '>='),
  maximum: numeric((value, limit) => value <= limit, '<='),
  exclusiveMinimum: numeric((value, limit) => value > limit, '>'),
  exclusiveMaximum: numeric((value, limit) => value < limit, '<'),
  minLength: sized(lengthOf, true, 'characters'),
  maxLength: sized(lengthOf, false, 'characters'),
  minItems: sized(itemsOf, true, 'items'),
  maxItems: sized(itemsOf, false, 'items'),
  minProperties: sized(propertiesOf, true, 'properties'),
  maxProperties: sized(propertiesOf, false, 'properties'),
  items(given) {
    const rule = ruleOf(given)
    if (!rule) return undefined
    return (value, run) => {
      if (Array.isArray(value)) for (const [at, item] of value.entries()) within(run, at, item, rule)
    }
  },
}

function within(run: Run, step: string | number, value: unknown, rule: Rule): void {
  if (run.problems.length >= mostProblems) return
  run.path.push(step)
  rule(value, run)
  run.path.pop()
}

/** `properties` and `additionalProperties` together: each property is looked at once. */
function members(properties: unknown, additional: unknown): Rule | undefined {
  if (!isObject(properties)) return undefined
  const rules = new Map<string, Rule>()
  for (const [name, schema] of Object.entries(properties)) {
    const rule = ruleOf(schema)
    if (!rule) return undefined
    rules.set(name, rule)
  }
  const others = additional === false ? undefined : ruleOf(additional)
  if (!others && additional !== false) return undefined
  return (value, run) => {
    if (!isObject(value)) return
    for (const name of Object.keys(value)) {
      const rule = rules.get(name) ?? others
      if (rule) within(run, name, value[name], rule)
      else report(run, `must NOT have additional properties ('${name.slice(0, 100)}')`)
      if (run.problems.length >= mostProblems) return
    }
  }
}

function ruleOf(schema: unknown, root = false): Rule | undefined {
  if (schema === true) return () => undefined
  if (schema === false) return (_, run) => report(run, 'boolean schema is false')
  if (!isObject(schema)) return undefined
  const { properties, additionalProperties, ...rest } = schema
  const rules: Rule[] = []
  for (const [key, given] of Object.entries(rest)) {
    if (ignored.has(key) || key.startsWith('x-')) continue
    if (root && key === '$schema' && typeof given === 'string' && dialect.test(given)) continue
    const rule = Object.hasOwn(keywords, key) ? keywords[key]!(given) : undefined
    if (!rule) return undefined
    rules.push(rule)
  }
  if (properties !== undefined || additionalProperties !== undefined) {
    const rule = members(properties ?? {}, additionalProperties ?? true)
    if (!rule) return undefined
    rules.push(rule)
  }
  return (value, run) => {
    for (const rule of rules) {
      if (run.problems.length >= mostProblems) return
      rule(value, run)
    }
  }
}

/** Nothing if the schema is not of this kind. The schema is within the limits, so that this may recurse. */
export function linearCheck(schema: Schema): Check | undefined {
  const rule = ruleOf(schema, true)
  if (!rule) return undefined
  return (value) => {
    const run: Run = { path: [], problems: [] }
    rule(value, run)
    return run.problems.length > 0 ? run.problems.join(', ') : undefined
  }
}
