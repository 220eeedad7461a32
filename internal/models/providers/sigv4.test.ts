// Against the example of Amazon's own description of the signature, and the cases of its published test suite.
import { expect, test } from 'vitest'
import { sign } from './sigv4.ts'

const key = {
  access_key_id: 'AKIDEXAMPLE',
  secret_access_key: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
  region: 'us-east-1',
  service: 'service',
}
const at = new Date('2015-08-30T12:36:00Z')
const signatureOf = (headers: Record<string, string>) => /Signature=(\w+)/.exec(headers.authorization!)?.[1]
const get = (url: string, headers: Record<string, string> = {}) =>
  sign({ method: 'GET', url: new URL(url), headers, body: Buffer.alloc(0) }, key, at)

test('get-vanilla', () => {
  expect(get('https://example.amazonaws.com/').authorization).toBe(
    'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31',
  )
})

test('get-vanilla-query-order-key-case', () => {
  expect(signatureOf(get('https://example.amazonaws.com/?Param2=value2&Param1=value1'))).toBe(
    'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
  )
})

test('post-vanilla and post-header-key-sort', () => {
  const post = { method: 'POST', url: new URL('https://example.amazonaws.com/'), body: Buffer.alloc(0) }
  expect(signatureOf(sign({ ...post, headers: {} }, key, at))).toBe(
    '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b',
  )
  expect(signatureOf(sign({ ...post, headers: { 'My-Header1': 'value1' } }, key, at))).toBe(
    'c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c',
  )
})

test('the example of the description: IAM', () => {
  const headers = { 'content-type': 'application/x-www-form-urlencoded; charset=utf-8' }
  const url = 'https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08'
  const signed = sign(
    { method: 'GET', url: new URL(url), headers, body: Buffer.alloc(0) },
    { ...key, service: 'iam' },
    at,
  )
  expect(signatureOf(signed)).toBe('5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7')
})

test('a body, a path with escapes and a session token are part of it', () => {
  const url = new URL('https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude%3A0/invoke')
  const request = { method: 'POST', url, headers: {}, body: Buffer.from('{}') }
  const plain = sign(request, key, at)
  expect(signatureOf(sign({ ...request, body: Buffer.from('{ }') }, key, at))).not.toBe(signatureOf(plain))
  const temporary = sign(request, { ...key, session_token: 'token' }, at)
  expect(temporary['x-amz-security-token']).toBe('token')
  expect(temporary.authorization).toContain('SignedHeaders=host;x-amz-date;x-amz-security-token,')
})
