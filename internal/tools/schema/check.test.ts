import { afterAll, expect, test, vi } from 'vitest'
import { createSchemaCheck } from './check.ts'

// Deadlines are in processor time, and a machine may be busy with something else.
vi.setConfig({ testTimeout: 60_000 })

const check = createSchemaCheck()
afterAll(() => check.close())

const catastrophic = { type: 'object', properties: { a: { type: 'string', pattern: '^(a+)+$' } } }
const attack = { a: `${'a'.repeat(40)}!` }

test('a pattern is checked, and one that takes too long is an error, then refused at once', async () => {
  expect(await check.validate('p', catastrophic, { a: 'aaa' })).toBeUndefined()
  expect(await check.validate('p', catastrophic, { a: 'b' })).toContain('must match pattern')
  for (let time = 0; time < 3; time++)
    await expect(check.validate('p', catastrophic, attack)).rejects.toMatchObject({
      kind: 'timeout',
      message: 'it takes longer than 250 ms to check',
    })
  const from = performance.now()
  await expect(check.validate('p', catastrophic, { a: 'aaa' })).rejects.toMatchObject({ kind: 'exhausted' })
  expect(performance.now() - from).toBeLessThan(200)
  expect(await check.validate('q', catastrophic, { a: 'aaa' })).toBeUndefined()
})

test('schemas with the same $id mean what they say', async () => {
  const strict = { $id: 'same', type: 'object', required: ['a'], anyOf: [{}] }
  const loose = { $id: 'same', type: 'object', anyOf: [{}] }
  expect(await check.validate('p', loose, {})).toBeUndefined()
  expect(await check.validate('q', strict, {})).toContain('must have required property')
})

test('slow jobs of one project do not hold up another', async () => {
  const check = createSchemaCheck()
  const slow = Array.from({ length: 20 }, async (_, at) => {
    await expect(check.validate('slow', { ...catastrophic, title: `${at}` }, attack)).rejects.toThrow()
  })
  const fast = { type: 'object', properties: { a: { format: 'email' } } }
  await check.validate('fast', fast, { a: 'a@example.com' })
  const times: number[] = []
  for (let time = 0; time < 20; time++) {
    const from = performance.now()
    expect(await check.validate('fast', fast, { a: 'none' })).toContain('must match format')
    times.push(performance.now() - from)
  }
  expect(times.sort((a, b) => a - b)[10]).toBeLessThan(250)
  await check.close()
  await Promise.all(slow)
})

test.each([
  [{ $ref: 'https://example.com/a.json' }, '$ref must refer to a place in the same schema'],
  [{ $ref: '#name' }, '$ref must refer to a place in the same schema'],
  [{ properties: { a: { $id: 'b' } } }, '$id is not supported'],
  [{ $defs: { a: { $anchor: 'b' } } }, '$anchor is not supported'],
  [{ items: { $dynamicRef: '#b' } }, '$dynamicRef is not supported'],
  [{ enum: Array.from({ length: 6000 }, (_, at) => at) }, 'more than 5000 values'],
  [{ description: 'x'.repeat(200_000) }, 'larger than 131072 bytes'],
])('a schema is refused: %#', async (more, words) => {
  await expect(check.declare('p', { type: 'object', ...more })).rejects.toThrow(words)
})

test('names of properties are no keywords', async () => {
  const schema = { type: 'object', properties: { $id: { type: 'string' }, $ref: { type: 'string' } } }
  expect(await check.validate('p', schema, { $id: 'a', $ref: 'b' })).toBeUndefined()
  expect(await check.validate('p', schema, { $id: 1 })).toContain('/$id must be string')
})
