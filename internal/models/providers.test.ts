import { expect, test } from 'vitest'
import type { Credential } from '../config-models.ts'
import { Fault } from '../fault.ts'
import { Secret } from '../log.ts'
import { askForUsage } from './body.ts'
import { chooseProvider, findCredential, requireCredential } from './credentials.ts'
import { baseUrl, keyShown, outgoing, passedOn } from './outgoing.ts'
import { costOf, priceOf } from './prices.ts'
import { providerError } from './provider-error.ts'
import { allowedPath, providers } from './providers.ts'

const credential = (provider: string, more: Partial<Credential> = {}): Credential => ({
  provider,
  key: new Secret('real'),
  ...more,
})

test.each([
  ['anthropic', 'POST', '/v1/messages', '/v1/messages'],
  ['anthropic', 'POST', '/v1/messages/count_tokens', '/v1/messages/count_tokens'],
  ['anthropic', 'POST', '/v1/files', undefined],
  ['anthropic', 'DELETE', '/v1/messages', undefined],
  ['openai', 'POST', '/v1/responses', '/responses'],
  ['openai', 'POST', '/responses', '/responses'],
  ['openai', 'POST', '/v1/fine_tuning/jobs', undefined],
  ['openai', 'GET', '/v1/responses/x', undefined],
  ['openrouter', 'GET', '/v1/models/owner/name', '/models/owner/name'],
  [
    'gemini',
    'POST',
    '/v1beta/models/gemini-x:streamGenerateContent',
    '/v1beta/models/gemini-x:streamGenerateContent',
  ],
  ['gemini', 'POST', '/v1beta/models/a/b:generateContent', undefined],
  ['gemini', 'POST', '/v1beta/cachedContents', undefined],
  [
    'bedrock',
    'POST',
    '/model/us.anthropic.claude-x-v1%3A0/invoke-with-response-stream',
    '/model/us.anthropic.claude-x-v1%3A0/invoke-with-response-stream',
  ],
  ['bedrock', 'POST', '/guardrail/x/apply', undefined],
] as const)('%s: %s %s', (provider, method, path, passed) => {
  expect(allowedPath(providers[provider], method, path)).toBe(passed)
})

test('a project uses what it names, else the only one there is', () => {
  const all = new Map([
    ['a', credential('anthropic')],
    ['o1', credential('openai', { base_url: 'http://one' })],
    ['o2', credential('openai', { base_url: 'http://two' })],
  ])
  expect(findCredential(all, [], 'anthropic')).toBe(all.get('a'))
  expect(findCredential(all, ['o2'], 'openai')).toBe(all.get('o2'))
  expect(() => findCredential(all, [], 'openai')).toThrow('o1, o2')
  expect(chooseProvider(all, ['o1'], ['anthropic', 'openai'])).toBe('openai')
  expect(chooseProvider(all, [], ['gemini', 'anthropic'])).toBe('anthropic')
  expect(chooseProvider(all, [], ['gemini'])).toBeUndefined()
  expect(() => requireCredential(all, [], 'gemini')).toThrow('no key for gemini')
})

test('the key of the droid is read wherever it is, and does not go on', () => {
  const query = new URLSearchParams('key=q&alt=sse')
  expect(keyShown({ 'x-api-key': 'a' }, query)).toBe('a')
  expect(keyShown({ authorization: 'Bearer b' }, query)).toBe('b')
  expect(keyShown({}, query)).toBe('q')
  const headers = {
    'x-api-key': 'droid',
    connection: 'x-odd, close',
    'x-odd': '1',
    'anthropic-version': '1',
    cookie: 'c',
  }
  expect(passedOn(headers)).toEqual({ 'anthropic-version': '1' })
  const to = outgoing(
    'gemini',
    credential('gemini'),
    { method: 'POST', path: '/p', query, headers },
    Buffer.alloc(0),
  )
  expect(to.url.href).toBe('https://generativelanguage.googleapis.com/p?alt=sse')
  expect(to.headers).toMatchObject({ 'x-goog-api-key': 'real', 'accept-encoding': 'identity' })
  expect(JSON.stringify(to)).not.toContain('droid')
  const signed = outgoing(
    'bedrock',
    credential('bedrock', { access_key_id: 'AK', region: 'eu-west-1' }),
    { method: 'POST', path: '/model/m/invoke', query: new URLSearchParams(), headers },
    Buffer.from('{}'),
  )
  expect(signed.url.host).toBe('bedrock-runtime.eu-west-1.amazonaws.com')
  expect(signed.headers.authorization).toContain('Credential=AK/')
  expect(signed.headers.authorization).not.toContain('real')
})

test('an address is needed where there is none to be known', () => {
  expect(() => baseUrl('openai-compatible', credential('openai-compatible'))).toThrow('base_url')
  expect(baseUrl('openai', credential('openai', { base_url: 'http://here/v1/' }))).toBe('http://here/v1')
})

test('a price by its name, else by the longest beginning', () => {
  const prices = {
    'a*': { input: 1, output: 1 },
    'ab*': { input: 2, output: 2 },
    abc: { input: 3, output: 4 },
  }
  expect(priceOf(prices, 'abc')?.input).toBe(3)
  expect(priceOf(prices, 'abcd')?.input).toBe(2)
  expect(priceOf(prices, 'b')).toBeUndefined()
  const tokens = { input: 1e6, cache_read: 1e6, cache_write: 0, output: 1e6 }
  expect(costOf({ input: 3, output: 4, cache_read: 0.5 }, tokens)).toBe(7.5)
  expect(costOf(undefined, tokens)).toBeUndefined()
  expect(costOf(undefined, { ...tokens, cost_usd: 1 })).toBe(1)
})

test('usage is asked for where it is not told by itself', () => {
  const asked = { stream: true, stream_options: { include_usage: true } }
  expect(JSON.parse(askForUsage(Buffer.from(' { "stream": true}')).toString())).toEqual(asked)
  expect(JSON.parse(askForUsage(Buffer.from('{"stream":true,"stream_options":{"x":1}}')).toString())).toEqual(
    {
      ...asked,
      stream_options: { x: 1, include_usage: true },
    },
  )
  for (const same of [
    '{"stream":false}',
    '{}',
    'nonsense "stream":true',
    '{"stream":true,"stream_options":{"include_usage":false}}',
  ])
    expect(askForUsage(Buffer.from(same)).toString()).toBe(same)
})

test.each([
  ['anthropic', 402, { type: 'error', error: { type: 'billing_error' } }],
  ['openai', 429, { error: { code: 'insufficient_quota' } }],
  ['gemini', 429, { error: { status: 'RESOURCE_EXHAUSTED', code: 429 } }],
  ['bedrock', 400, { message: 'spent (raise it)' }],
] as const)('exhausted as %s says it', (dialect, status, body) => {
  const error = providerError(dialect, new Fault('exhausted', 'spent', { hint: 'raise it' }))
  expect(error.status).toBe(status)
  expect(error.headers['x-should-retry']).toBe('false')
  expect(JSON.parse(error.body)).toMatchObject(body)
})
