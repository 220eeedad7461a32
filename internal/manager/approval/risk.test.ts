import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isDangerousName, riskOf } from './risk.ts'

describe('a name', () => {
  test.each([
    'run_query',
    'executeCode',
    'rm',
    'RUNQuery',
    'files.delete2',
    'write-file',
    'overwriteFile',
    'bulkUpdate',
    'remove_all',
    'exec',
    'shell',
    'command_line',
    'eval',
    'evaluate_js',
    'create_issue',
    'createdraft',
    'ＤＥＬＥＴＥ_file',
    'dеlete', // a Cyrillic letter
    'list\u200bfiles',
    '',
    'a'.repeat(2_000),
  ])('%j is dangerous', (name) => expect(isDangerousName(name)).toBe(true))

  test.each([
    'get_prune_list',
    'runtime_info',
    'search',
    'listFiles',
    'brunch',
    'trunk',
    'reshape',
    'armor',
    'HTTPGet',
  ])('%j is not', (name) => expect(isDangerousName(name)).toBe(false))

  const verb = fc.constantFrom(
    'write',
    'delete',
    'remove',
    'exec',
    'run',
    'shell',
    'command',
    'eval',
    'create',
    'update',
  )
  const noun = fc.constantFrom('file', 'user', 'note', 'page')
  const capital = (word: string) => word[0]!.toUpperCase() + word.slice(1)
  const joins: ((a: string, b: string) => string)[] = [
    (a, b) => `${a}_${b}`,
    (a, b) => `${b}-${a}`,
    (a, b) => `${a}${capital(b)}`,
    (a, b) => `${b}${capital(a)}`,
    (a, b) => `${a.toUpperCase()}_${b}`,
    (a, b) => `${b}.${a}.1`,
    (a, b) => `${b}${a.toUpperCase()}`,
  ]

  test('with one of the ten words is dangerous however it is joined', () => {
    fc.assert(fc.property(verb, noun, fc.constantFrom(...joins), (a, b, join) => isDangerousName(join(a, b))))
  })
})

describe('annotations', () => {
  const hint = fc.constantFrom(true, false, undefined, 'true', 1, null)
  const annotations = fc.record({ readOnlyHint: hint, destructiveHint: hint })
  const order = ['read', 'write', 'unstated', 'dangerous']

  test('of a server that is not trusted never lower the risk', () => {
    fc.assert(
      fc.property(fc.string(), annotations, (name, given) => {
        const [claimed, plain] = [riskOf({ name, annotations: given }, false), riskOf({ name }, false)]
        expect(order.indexOf(claimed)).toBeGreaterThanOrEqual(order.indexOf(plain))
      }),
    )
  })

  test('of a trusted server count if they are booleans, and the destructive one wins', () => {
    const risk = (given: Record<string, unknown>, name = 'delete') =>
      riskOf({ name, annotations: given }, true)
    expect(risk({ readOnlyHint: true })).toBe('read')
    expect(risk({ readOnlyHint: 'true' })).toBe('dangerous')
    expect(risk({ readOnlyHint: true, destructiveHint: true })).toBe('dangerous')
    expect(risk({ destructiveHint: false })).toBe('write')
    expect(risk({ readOnlyHint: false })).toBe('dangerous')
    expect(risk({ readOnlyHint: false }, 'search')).toBe('unstated')
  })
})
