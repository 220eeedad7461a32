import fc from 'fast-check'
import { expect, test } from 'vitest'
import { canonicalJson, hashOf } from './canonical-json.ts'

test('sorts names by code units at every depth, and keeps the order of arrays', () => {
  expect(
    canonicalJson({ b: [{ z: 1, a: null }, 2], a: 'é\n', '\u{1f600}': 0, '\ufb33': 1, u: undefined }),
  ).toBe('{"a":"é\\n","b":[{"a":null,"z":1},2],"\u{1f600}":0,"\ufb33":1}')
})

/** The same value with the members of its objects in another order. */
const reversed = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(reversed)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, inner]) => [key, reversed(inner)]),
  )
}

test('is the same for equal values, parses to the same value, and differs for others', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (one, other) => {
      expect(hashOf(reversed(one))).toBe(hashOf(one))
      const text = JSON.stringify(one)
      expect(JSON.parse(canonicalJson(one))).toEqual(JSON.parse(text))
      expect(hashOf(one) === hashOf(other)).toBe(canonicalJson(one) === canonicalJson(other))
    }),
  )
  const values = [
    {},
    [],
    null,
    '',
    0,
    false,
    { a: 1 },
    { a: '1' },
    { a: [1] },
    [1, 2],
    [2, 1],
    [[1], 2],
    [1, [2]],
  ]
  expect(new Set(values.map(hashOf)).size).toBe(values.length)
})
