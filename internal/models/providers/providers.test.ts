import { expect, test } from 'vitest'
import type { Credential } from '../../config/models.ts'
import { Fault } from '../../fault.ts'
import { Secret } from '../../log.ts'
import { chooseProvider, findCredential, requireCredential } from './credentials.ts'
import { providerError } from './errors.ts'
import { baseUrl, keyShown, outgoing, sentOn } from './outgoing.ts'
import { costOf, priceOf, worstCase } from './prices.ts'
import { allowedQuery, providers, routeOf } from './providers.ts'

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
  ['anthropic', 'POST', '/v1/%6dessages', '/v1/messages'],
  ['anthropic', 'GET', '/v1/models/..%2f..%2fsecret', undefined],
  ['anthropic', 'GET', '/v1/models/%2e%2e', undefined],
  ['anthropic', 'GET', '/v1/models/.', undefined],
  ['anthropic', 'GET', '/v1/models/%252e%252e%252fsecret', undefined],
  ['anthropic', 'GET', '/v1/models/a%00b', undefined],
  ['anthropic', 'GET', '/v1/models/a%5cb', undefined],
  ['anthropic', 'GET', '/v1//models', undefined],
  ['anthropic', 'GET', '/v1/models/%zz', undefined],
  ['anthropic', 'GET', '/v1/models/a%3Fb', undefined],
  ['anthropic', 'GET', '/v1/models/\u2025', undefined],
  ['gemini', 'POST', '/v1beta/models/x:predict%3AgenerateContent', undefined],
  ['bedrock', 'POST', '/model/x%2f..%2finvoke', undefined],
  [
    'bedrock',
    'POST',
    '/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Ainference-profile%2Feu.x-v1%3A0/converse',
    '/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Ainference-profile%2Feu.x-v1%3A0/converse',
  ],
] as const)('%s: %s %s', (provider, method, path, passed) => {
  expect(routeOf(providers[provider], method, path)?.path).toBe(passed)
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
  expect(() => requireCredential(all, [], 'gemini')).toThrow('no credential for gemini')
})

test('the key of the droid is read wherever it is, and only known headers go on', () => {
  const query = new URLSearchParams('key=q&alt=sse')
  expect(keyShown({ 'x-api-key': 'a' }, query)).toBe('a')
  expect(keyShown({ authorization: 'Bearer b' }, query)).toBe('b')
  expect(keyShown({}, query)).toBe('q')
  const headers = {
    'x-api-key': 'droid',
    connection: 'x-odd, close',
    'x-odd': '1',
    'anthropic-version': '1',
    'x-stainless-lang': 'js',
    'x-goog-fieldmask': 'candidates',
    'x-goog-user-project': 'other',
    'openai-organization': 'other',
    'x-amzn-bedrock-service-tier': 'priority',
    cookie: 'c',
  }
  expect(sentOn(headers)).toEqual({ 'anthropic-version': '1', 'x-stainless-lang': 'js' })
  const passed = allowedQuery(providers.gemini, query)
  const to = outgoing('gemini', credential('gemini'), { method: 'GET', path: '/p', query: passed, headers })
  expect(to.url.href).toBe('https://generativelanguage.googleapis.com/p?alt=sse')
  expect(to.headers).toMatchObject({ 'x-goog-api-key': 'real', 'accept-encoding': 'identity' })
  expect(JSON.stringify(to)).not.toContain('droid')
  const signed = outgoing('bedrock', credential('bedrock', { access_key_id: 'AK', region: 'eu-west-1' }), {
    method: 'POST',
    path: '/model/m/invoke',
    query: [],
    headers,
    body: { bytes: Buffer.from('{}'), sha256: undefined },
  })
  expect(signed.url.host).toBe('bedrock-runtime.eu-west-1.amazonaws.com')
  expect(signed.headers.authorization).toContain('Credential=AK/')
  expect(signed.headers.authorization).not.toContain('real')
})

test.each(['fields=candidates', '$fields=candidates', 'alt=sse&alt=json', 'alt=s%0d%0ae', 'access_token=x'])(
  'the parameters %s are not passed on',
  (query) => {
    expect(() => allowedQuery(providers.gemini, new URLSearchParams(query))).toThrow('not supported')
  },
)

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
  const price = { input: 3, output: 4 }
  expect(costOf(price, { ...tokens, cost_usd: 1 })).toBe(1)
  expect(costOf(price, { ...tokens, cache_write: 1e6, cache_write_1h: 1e6 })).toBe(3 + 3 + 6 + 4)
  const long = { ...price, long_context: { above_tokens: 200_000, factor: 2 } }
  expect(costOf(long, tokens)).toBe(20)
  expect(costOf(long, { ...tokens, input: 100_000, cache_read: 100_000 })).toBeCloseTo(4.6)
})

test('the worst case is never less than what can come', () => {
  const estimates = { output_tokens: 1000, image_tokens: 10, file_tokens: 100 }
  const asked = {
    text_bytes: 998_000,
    images: 0,
    files: 0,
    hosted: 0,
    long_cache: true,
    output: 500,
    answers: 2,
  }
  const price = { input: 1, output: 10, cache_write: 1.5 }
  // An hour's cache costs twice the input.
  expect(worstCase(price, estimates, asked)).toMatchObject({ input_tokens: 1e6, output_tokens: 1000 })
  expect(worstCase(price, estimates, asked).usd).toBeCloseTo(2 + 0.01)
  expect(worstCase(price, estimates, { ...asked, long_cache: false }).usd).toBeCloseTo(1.5 + 0.01)
  expect(worstCase(price, estimates, { ...asked, output: undefined }).output_tokens).toBe(2000)
  const own = { ...price, max_output_tokens: 30 }
  expect(worstCase(own, estimates, { ...asked, output: undefined }).output_tokens).toBe(60)
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
