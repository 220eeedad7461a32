import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createBoundedOutput } from './bounded-output.ts'

describe('capped output', () => {
  it('keeps what fits and says when there was more', () => {
    const output = createBoundedOutput(5)
    output.push(Buffer.from('abc'))
    output.push(Buffer.from('de'))
    expect([output.text(), output.truncated]).toEqual(['abcde', false])
    output.push(Buffer.from('f'))
    expect([output.text(), output.truncated]).toEqual(['abcde', true])
  })

  it('never ends with half a character', () => {
    const text = 'aä€😀'.repeat(10)
    const bytes = Buffer.from(text)
    fc.assert(
      fc.property(fc.nat(bytes.length), fc.integer({ min: 1, max: 7 }), (limit, piece) => {
        const output = createBoundedOutput(limit)
        for (let at = 0; at < bytes.length; at += piece) output.push(bytes.subarray(at, at + piece))
        expect(text.startsWith(output.text())).toBe(true)
        expect(limit - Buffer.byteLength(output.text())).toBeLessThan(4)
        expect(output.truncated).toBe(limit < bytes.length)
      }),
    )
  })

  it('shows bytes that are no text instead of losing what surrounds them', () => {
    const output = createBoundedOutput(4)
    output.push(Buffer.from([0x61, 0x80, 0x80, 0x80, 0x80, 0x80]))
    expect(output.text()).toBe('a\ufffd\ufffd\ufffd')
  })
})
