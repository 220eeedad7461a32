// Invalid values, and some that are nearly valid.
import fc from 'fast-check'

const uuid = '3f2b8c1a-9d4e-4f6a-8b7c-1d2e3f4a5b6c'
const ids = [
  uuid,
  uuid.toUpperCase(),
  `${uuid}0`,
  'gogol_0123456789abcdef0123',
  'tok_0123456789abcdef0123',
  'apr_0123456789abcdef0123',
  'sch_0123456789abcdef0123',
  `oub_${'0'.repeat(64)}`,
  'default',
  '*',
]
const paths = [
  '../../../etc/passwd',
  '/etc/shadow',
  '..\\..\\x',
  './../.',
  '~',
  '/proc/self/environ',
  'a//b/',
  '.',
]
const texts = [
  '',
  ' ',
  'a\0b',
  '\ud800',
  'x\udfffy',
  '\u202egnirts',
  '\r\n\r\nHTTP/1.1 200 OK',
  "'; drop table projects; --",
  '%s%n%x',
  '$(reboot)',
  'null',
  'NaN',
  '1e999',
  '__proto__',
  'constructor',
  'toString',
]

export const nested = (depth: number): unknown => {
  let value: unknown = 1
  for (let at = 0; at < depth; at++) value = at % 2 === 0 ? [value] : { a: value }
  return value
}

const huge = fc.constantFrom(5_000, 60_000, 120_000).map((size) => 'x'.repeat(size))
export const badText = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...texts) },
  { weight: 3, arbitrary: fc.constantFrom(...paths) },
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  { weight: 1, arbitrary: huge },
)

export const badValue: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 4, arbitrary: badText },
  { weight: 3, arbitrary: fc.constantFrom(...ids) },
  { weight: 3, arbitrary: fc.constantFrom<unknown>(null, true, false, 0, -1, 1.5, 1e21, -1e308, 2 ** 53) },
  { weight: 2, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.constantFrom(10, 63, 64, 65, 110).map(nested) },
  { weight: 1, arbitrary: fc.constant({ ['__proto__']: { admin: true }, constructor: { prototype: {} } }) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 3000 }).map((length) => Array(length).fill('y')) },
)

export const badName = fc.oneof(
  fc.constantFrom(
    '__proto__',
    'constructor',
    'hasOwnProperty',
    'action',
    'Action',
    '',
    ' ',
    'a\0',
    '\ud800',
    'x'.repeat(5000),
  ),
  fc.string({ maxLength: 20 }),
)
