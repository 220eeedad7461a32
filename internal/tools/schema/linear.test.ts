import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { linearCheck } from './linear.ts'

const name = fc.constantFrom('a', 'b', 'c', 'd')
const plain = fc.oneof(
  fc.constantFrom('', 'x', 'xy', '👍', 'e\u0301'),
  fc.integer({ min: -3, max: 3 }),
  fc.constantFrom(0.5, 1.5, 1e300),
  fc.boolean(),
  fc.constant(null),
)
const value = fc.letrec((tie) => ({
  any: fc.oneof({ depthSize: 'small' }, plain, fc.array(tie('any'), { maxLength: 3 }), tie('object')),
  object: fc.dictionary(name, tie('any'), { maxKeys: 4 }),
})).any
const type = fc.constantFrom('string', 'number', 'integer', 'boolean', 'null', 'array', 'object')
const small = fc.integer({ min: 0, max: 3 })
const schema = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { depthSize: 'small' },
    fc.boolean(),
    fc.record(
      {
        type: fc.oneof(type, fc.uniqueArray(type, { minLength: 1, maxLength: 3 })),
        enum: fc.uniqueArray(plain, { minLength: 1, maxLength: 4 }),
        const: plain,
        required: fc.uniqueArray(name, { maxLength: 3 }),
        properties: fc.dictionary(name, tie('schema'), { maxKeys: 3 }),
        additionalProperties: tie('schema'),
        items: tie('schema'),
        minimum: small,
        maximum: small,
        exclusiveMinimum: small,
        exclusiveMaximum: small,
        minLength: small,
        maxLength: small,
        minItems: small,
        maxItems: small,
        minProperties: small,
        maxProperties: small,
      },
      { requiredKeys: [] },
    ),
  ),
})).schema

describe('a linear check', () => {
  test('agrees with ajv on random schemas and values', () => {
    const seed = Date.now() & 0x7fffffff
    let valid = 0
    let invalid = 0
    const property = fc.property(schema, value, (inner, given) => {
      const root = { type: 'object', properties: { it: inner } } as const
      const check = linearCheck(root as never)
      expect(check).toBeDefined()
      const expected = new AjvJsonSchemaValidator().getValidator(root as never)({ it: given }).valid
      expect(check?.({ it: given }) === undefined).toBe(expected)
      if (expected) valid += 1
      else invalid += 1
    })
    fc.assert(property, { seed, numRuns: 400 })
    process.stdout.write(`linear schemas against ajv: seed ${seed}, ${valid} valid, ${invalid} invalid\n`)
    expect(Math.min(valid, invalid)).toBeGreaterThan(20)
  }, 60_000)

  test.each([
    { properties: { a: { type: 'string', pattern: '(a+)+$' } } },
    { patternProperties: { '(a+)+$': {} } },
    { propertyNames: { pattern: '(a+)+$' } },
    { properties: { a: { format: 'email' } } },
    { properties: { a: { uniqueItems: true } } },
    { properties: { a: { $ref: '#' } } },
    { anyOf: [{}] },
    { not: {} },
    { properties: { a: { enum: [{ a: 1 }] } } },
    { properties: { a: { const: [1] } } },
    { properties: { a: { items: [{}] } } },
    { properties: { a: { contains: {} } } },
    { properties: { a: { minLength: -1 } } },
    { properties: { a: { type: 'text' } } },
    { unevaluatedProperties: false },
    { dependentRequired: { a: ['b'] } },
    { $schema: 'http://example.com/schema' },
  ])('is not made for %j', (more) => {
    expect(linearCheck({ type: 'object', ...more })).toBeUndefined()
  })

  test('says what is wrong and where, a few times only', () => {
    const check = linearCheck({
      type: 'object',
      properties: { list: { type: 'array', items: { type: 'string' } }, n: { type: 'integer', minimum: 3 } },
      required: ['list'],
      additionalProperties: false,
    })
    expect(check?.({})).toBe("data must have required property 'list'")
    expect(check?.({ list: [], n: 1 })).toBe('data/n must be >= 3')
    expect(check?.({ list: [], x: 1 })).toBe("data must NOT have additional properties ('x')")
    expect(check?.({ list: [...Array(1000)].map((_, at) => at) })?.split(', ')).toHaveLength(5)
    expect(check?.(JSON.parse('{"list":[],"__proto__":1}'))).toContain("('__proto__')")
  })
})
