import { expect, test } from 'vitest'
import { encodeEvent } from './event-line.ts'

test('an event is one line with its number and its time', () => {
  const line = encodeEvent(7, { type: 'delta', text: 'a\nb', seq: 99 })
  expect(line.endsWith('\n')).toBe(true)
  expect(line.split('\n')).toHaveLength(2)
  expect(JSON.parse(line)).toMatchObject({
    seq: 7,
    type: 'delta',
    text: 'a\nb',
    at: expect.stringMatching(/Z$/),
  })
})

test('what a database cannot store is replaced, and look-alikes are left alone', () => {
  const line = encodeEvent(0, {
    type: 'x',
    'k\0': 'a\0b',
    deep: [{ lone: '\ud800!' }],
    plain: '\\u0000',
    pair: '😀',
  })
  expect(JSON.parse(line)).toMatchObject({
    'k\ufffd': 'a\ufffdb',
    deep: [{ lone: '\ufffd!' }],
    plain: '\\u0000',
    pair: '😀',
  })
})

test('an event that is too large is cut and says so', () => {
  const image = 'A'.repeat(3_000_000)
  const line = encodeEvent(1, {
    type: 'tool_result',
    tool_call_id: 'c',
    content: [{ data: image }, { text: 'short' }],
  })
  expect(line.length).toBeLessThan(1024 * 1024)
  expect(JSON.parse(line)).toMatchObject({
    seq: 1,
    tool_call_id: 'c',
    truncated: true,
    content: [{}, { text: 'short' }],
  })
  const many = encodeEvent(2, {
    type: 'x',
    list: Array.from({ length: 90 }, () => Array(90).fill('y'.repeat(900))),
  })
  expect(many.length).toBeLessThan(1024 * 1024)
})
