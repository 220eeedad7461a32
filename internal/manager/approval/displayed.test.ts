import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { displayed, safeText } from './displayed.ts'

/** What terminals and browsers act on or do not show. */
const invisible = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/u

describe('text', () => {
  test('that can be seen stays as it is', () => {
    const text = 'Grüße, 日本語 👍 ¡señor! — "quoted" \\ back\nline\ttab'
    expect(safeText(text)).toBe(text)
  })

  test('has no invisible character left but line feeds and tabs', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(safeText(text).replace(/[\n\t]/g, '')).not.toMatch(invisible)
      }),
    )
    expect(safeText('a\u202eb\u001b[31m\r\0\ud800')).toBe('a\\u{202e}b\\u{1b}[31m\\u{d}\\u{0}\\u{d800}')
  })
})

describe('a value', () => {
  test('that is small is shown whole', () => {
    const value = { a: [1, true, null, { b: 'x' }], c: 'y'.repeat(1_000) }
    expect(displayed(value)).toEqual(value)
  })

  test('of any size and shape is shown within the budget', () => {
    const large: unknown[] = [
      'x'.repeat(1_000_000),
      { a: 'x'.repeat(1_000_000) },
      Array.from({ length: 100_000 }, (_, n) => n),
      Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`key ${n}`, n])),
      { ['k'.repeat(100_000)]: 1 },
      Array.from({ length: 1_000 }, () => '\u202e'.repeat(1_000)),
      Array.from({ length: 100 }).reduce((inner) => [inner], 1),
    ]
    for (const value of large) expect(JSON.stringify(displayed(value)).length).toBeLessThan(40_000)
    const [text] = large
    expect(displayed(text)).toMatch(/^x{2000}… \(1,000,000 characters\)$/)
    fc.assert(
      fc.property(fc.object({ maxDepth: 4, maxKeys: 30 }), (value) => {
        expect(JSON.stringify(displayed(value, 200))?.length ?? 0).toBeLessThan(2_000)
      }),
    )
  })

  test('does not become an object of another kind by its names', () => {
    const value = JSON.parse('{"__proto__": {"x": 1}, "constructor": 2}') as object
    expect(JSON.stringify(displayed(value))).toBe('{"__proto__":{"x":1},"constructor":2}')
  })
})
