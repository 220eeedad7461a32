import { expect, test } from 'vitest'
import { isJson, parseBody } from './serve.ts'

const parse = (text: string) => parseBody(Buffer.from(text))
const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)

test('takes JSON of any shape up to a depth', () => {
  expect(parse(nested(128)).ok).toBe(true)
  expect(parse(nested(129))).toMatchObject({ ok: false, problem: expect.stringContaining('128 levels') })
  expect(parse('{"a":'.repeat(4_000_000)).ok).toBe(false)
})

test('does not count brackets in strings', () => {
  const text = JSON.stringify({ text: `${'['.repeat(500)}\\"${'{'.repeat(500)}` })
  expect(parse(text)).toEqual({ ok: true, value: JSON.parse(text) })
})

test('says what is wrong', () => {
  expect(parseBody(undefined)).toMatchObject({ ok: false, problem: 'the body is empty' })
  expect(parse('{')).toMatchObject({ ok: false })
  expect(parseBody(Buffer.from([0x22, 0xff, 0x22]))).toMatchObject({ ok: false })
})

test('knows the content type of JSON', () => {
  for (const type of ['application/json', 'Application/JSON; charset=utf-8']) expect(isJson(type)).toBe(true)
  for (const type of [null, '', 'text/plain', 'application/jsonx']) expect(isJson(type)).toBe(false)
})
