// What a droid may try in order to spend more than its project may, to have its provider do what its network does not
// allow, or to get at the provider's key. Requests are written to the container's socket directly, with the droid's own key.
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { createConnection } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type HostileProvider, startHostileProvider, used } from '../../fixtures/attacks/hostile-provider.ts'
import { type Droid, droid } from '../../fixtures/droid-socket.ts'
import { expectHealthy, latenciesDuring } from '../../fixtures/latency/latency.ts'
import { end, history, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const key = `sk-canary-${randomBytes(24).toString('base64url')}`
// Dollars per million: output is what a request can waste, so it is dear.
const price = { input: 10, output: 2000, cache_write_1h: 10 }
const costOfOne = (used.input * price.input + used.output * price.output) / 1e6
const max_tokens = 100

let provider: HostileProvider
let booted: Booted
let shared: Droid

beforeAll(async () => {
  provider = await startHostileProvider(key)
  const credential = (name: string, base_url = provider.url) => ({ provider: name, key, base_url })
  booted = await boot({
    config: {
      reconcile_seconds: 1,
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000, max_cost_usd: 1000 },
      prices: { 'test-*': price },
      unpriced_models: 'refuse',
      hosted_tools: ['web_search', 'urls'],
      credentials: {
        a: credential('anthropic'),
        o: credential('openai', `${provider.url}/v1`),
        g: credential('gemini'),
      },
    },
    env: { ANTHROPIC_API_KEY: '', OPENAI_API_KEY: '', GEMINI_API_KEY: '', OPENROUTER_API_KEY: '' },
  })
  shared = await droid(booted, await booted.project())
})
afterAll(async () => {
  await booted?.stop()
  await provider?.[Symbol.asyncDispose]()
})

type Said = { status: number; headers: IncomingMessage['headers']; text: string }
type Ask = { path?: string; method?: string; headers?: Record<string, string>; body?: unknown }

function open(from: Droid, { path = '/anthropic/v1/messages', method = 'POST', headers = {}, body }: Ask) {
  const bytes =
    Buffer.isBuffer(body) || typeof body === 'string' ? Buffer.from(body) : JSON.stringify(body ?? {})
  const asking = request({
    socketPath: from.socket,
    path,
    method,
    headers: {
      'x-api-key': from.api_key,
      'content-type': 'application/json',
      ...(method === 'GET' ? {} : { 'content-length': Buffer.byteLength(bytes) }),
      ...headers,
    },
  })
  asking.on('error', () => undefined)
  asking.end(method === 'GET' ? undefined : bytes)
  return asking
}

async function ask(from: Droid, what: Ask): Promise<Said> {
  const [answer] = (await once(open(from, what), 'response')) as [IncomingMessage]
  let text = ''
  for await (const chunk of answer.setEncoding('utf8')) text += chunk
  return { status: answer.statusCode ?? 0, headers: answer.headers, text }
}

const messages = (more: object = {}) => ({ model: 'test-model', max_tokens, messages: [], ...more })
const told = (what: string, more: object = {}) => messages({ metadata: { do: what }, ...more })

const usedBy = async (project_id: string): Promise<Answer> =>
  (await booted.ok('config_limits', { project_id })).used
const settled = (project_id: string) =>
  until(
    async () => {
      const found = await usedBy(project_id)
      return found.reserved_usd === 0 && found
    },
    { what: 'nothing is reserved any more' },
  )

/** What the work cost its project, once it is settled; what was settled before may still be on its way. */
async function costOf(project_id: string, work: () => Promise<unknown>): Promise<number> {
  const before = (await settled(project_id)).cost_usd
  await work()
  return (await settled(project_id)).cost_usd - before
}

describe('usage is counted', () => {
  test.each([
    ['with usage switched off', '{"model":"test-m","stream":true,"stream_options":{"include_usage":false}}'],
    ['with an escaped key', '{"model":"test-m","str\\u0065am":true}'],
    ['with a key given twice', '{"model":"test-m","stream":false,"stream":true}'],
    ['with odd white space', '{"model":"test-m","stream"\n\t:\r\n true}'],
    [
      'with the wish for usage in the text',
      '{"model":"test-m","stream":true,"user":"\\"include_usage\\"","x":"include_usage"}',
    ],
    ['of an ordinary client', '{"model":"test-m","stream":true,"stream_options":{"include_usage":true}}'],
  ])('for a stream %s', async (_name, body) => {
    const cost = await costOf(shared.project_id, async () => {
      expect(await ask(shared, { path: '/openai/v1/chat/completions', body })).toMatchObject({ status: 200 })
    })
    expect(cost).toBeCloseTo(costOfOne, 10)
  })

  test('for a Gemini answer whose fields are masked by a parameter or a header: neither is passed on', async () => {
    const path = '/gemini/v1beta/models/test-g:generateContent'
    const asked = provider.got.length
    for (const query of ['?fields=candidates', '?%24fields=candidates', '?alt=json&fields=candidates'])
      expect(await ask(shared, { path: path + query })).toMatchObject({ status: 400 })
    expect(provider.got.length).toBe(asked)
    const cost = await costOf(shared.project_id, () =>
      ask(shared, { path, headers: { 'x-goog-fieldmask': 'candidates' } }),
    )
    expect(provider.got.at(-1)!.headers['x-goog-fieldmask']).toBeUndefined()
    expect(cost).toBeCloseTo(costOfOne, 10)
  })

  test('in full for a droid that hangs up before the end, by what is known of the input', async () => {
    const cost = await costOf(shared.project_id, async () => {
      const asking = open(shared, { body: told('hang', { stream: true }) })
      const [answer] = (await once(asking, 'response')) as [IncomingMessage]
      await once(answer, 'data')
      asking.destroy()
      await until(() => provider.got.at(-1)!.closed, { what: 'the provider notices' })
    })
    expect(cost).toBeCloseTo((100 * price.input + max_tokens * price.output) / 1e6, 10)
  })

  test('in full for a droid that hangs up before the first byte, and for an answer that does not say', async () => {
    const worst = (max_tokens * price.output) / 1e6
    const cost = await costOf(shared.project_id, async () => {
      const before = provider.got.length
      const asking = open(shared, { body: told('silence') })
      await until(() => provider.got.length > before, { what: 'the provider is asked' })
      asking.destroy()
      await until(() => provider.got.at(-1)!.closed, { what: 'the provider notices' })
    })
    expect(cost).toBeGreaterThan(worst)
    const silent = await costOf(shared.project_id, () => ask(shared, { body: told('no usage') }))
    expect(silent).toBeGreaterThan(worst)
    expect(silent).toBeLessThan(worst * 1.5)
    const estimated = (await history(booted, shared.session_id)).filter((event) => event.estimated === true)
    expect(estimated.length).toBeGreaterThanOrEqual(2)
  })

  test('as nothing for an error of the provider', async () => {
    const cost = await costOf(shared.project_id, async () =>
      expect(await ask(shared, { body: told('error') })).toMatchObject({ status: 529 }),
    )
    expect(cost).toBe(0)
  })

  test('when the body comes in chunks, and not at all when its length is given twice', async () => {
    const text = JSON.stringify(messages())
    const cost = await costOf(shared.project_id, async () => {
      const asking = request({
        socketPath: shared.socket,
        path: '/anthropic/v1/messages',
        method: 'POST',
        headers: { 'x-api-key': shared.api_key },
      })
      for (const letter of text) asking.write(letter)
      asking.end()
      const [answer] = (await once(asking, 'response')) as [IncomingMessage]
      await once(answer.resume(), 'end')
      expect(answer.statusCode).toBe(200)
    })
    expect(cost).toBeCloseTo(costOfOne, 10)
    const asked = provider.got.length
    const raw = createConnection(shared.socket)
    raw.write(
      `POST /anthropic/v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${shared.api_key}\r\ncontent-length: 2\r\ncontent-length: 40\r\n\r\n{}`,
    )
    raw.on('error', () => undefined)
    const [first] = (await once(raw, 'data')) as [Buffer]
    raw.destroy()
    expect(first.toString()).toMatch(/^HTTP\/1.1 400 /)
    expect(provider.got.length).toBe(asked)
  })
})

describe('what cannot be counted is refused before it leaves', () => {
  const responses = { path: '/openai/v1/responses' }
  const chat = { path: '/openai/v1/chat/completions' }
  const m = { model: 'test-m' }
  test.each<[string, number, Ask]>([
    [
      'a compressed body',
      400,
      { headers: { 'content-encoding': 'gzip' }, body: gzipSync(JSON.stringify(messages())) },
    ],
    ['a body that is not JSON', 400, { body: 'model=test-m&stream=true' }],
    ['a body that is a list', 400, { body: '[{"model":"test-m"}]' }],
    ['a stream that is not quite true', 400, { ...chat, body: { ...m, stream: 'true' } }],
    ['a maximum that is text', 400, { ...chat, body: { ...m, max_tokens: '999999' } }],
    ['a response in the background', 403, { ...responses, body: { ...m, background: true } }],
    ['a conversation that is stored', 403, { ...responses, body: { ...m, previous_response_id: 'resp_1' } }],
    ['a tier that costs more', 403, { ...responses, body: { ...m, service_tier: 'priority' } }],
    ['a fast mode that costs more', 403, { body: messages({ speed: 'fast' }) }],
    ['a choice of other models', 403, { ...chat, body: { ...m, models: ['test-m', 'other'] } }],
    [
      'cached input',
      403,
      { path: '/gemini/v1beta/models/test-g:generateContent', body: { cachedContent: 'c/1' } },
    ],
    ['a model without a price', 403, { body: messages({ model: 'unheard-of' }) }],
    ['a batch', 404, { path: '/anthropic/v1/messages/batches', body: { requests: [] } }],
  ])('%s: %d', async (_name, status, what) => {
    const asked = provider.got.length
    const answer = await ask(shared, what)
    expect(answer.status).toBe(status)
    expect(JSON.parse(answer.text).error.message).not.toBe('')
    expect(provider.got.length).toBe(asked)
  })

  test('and the same requests without it are passed on', async () => {
    for (const what of [
      { body: messages() },
      { ...responses, body: m },
      { ...chat, body: { ...m, max_tokens: 9 } },
    ])
      expect(await ask(shared, what)).toMatchObject({ status: 200 })
  })
})

describe('the limit', () => {
  test('holds against 50 requests at once: it is exceeded by no more than the estimate of one', async () => {
    const max_cost_usd = 1
    const poor = await droid(booted, await booted.project({ limits: { max_cost_usd } }))
    const before = provider.got.length
    const all = Array.from({ length: 50 }, () => ask(poor, { body: told('wait') }))
    const refused = await until(
      async () => {
        const { reserved_usd } = await usedBy(poor.project_id)
        return reserved_usd >= max_cost_usd && reserved_usd
      },
      { what: 'the rest of the limit is reserved' },
    )
    const admitted = () => provider.got.length - before
    await until(() => admitted() > 0, { what: 'the provider is asked' })
    // Those that are refused have their answer, while those that were admitted wait for the provider.
    const statuses: number[] = []
    for (const one of all) void one.then(({ status }) => statuses.push(status))
    await until(() => statuses.length + admitted() === 50, { what: 'all are refused or admitted' })
    expect(new Set(statuses)).toEqual(new Set([503]))
    const estimate = refused / admitted()
    expect(refused).toBeLessThan(max_cost_usd + estimate)
    provider.release()
    const answers = await Promise.all(all)
    const { cost_usd } = await settled(poor.project_id)
    const passed = answers.filter(({ status }) => status === 200).length
    expect(passed).toBe(admitted())
    expect(cost_usd).toBeCloseTo(passed * costOfOne, 10)
    expect(cost_usd).toBeLessThan(max_cost_usd + estimate)
    // What was only reserved is free again.
    expect(await ask(poor, { body: messages() })).toMatchObject({ status: 200 })
  })

  test('counts every answer of a request that asks for several', async () => {
    const one = await droid(booted, await booted.project())
    const reserved = async (more: object) => {
      const asking = ask(one, { path: '/openai/v1/chat/completions', body: told('wait', more) })
      const found = await until(async () => (await usedBy(one.project_id)).reserved_usd, {
        what: 'it is reserved',
      })
      provider.release()
      await asking
      await settled(one.project_id)
      return found
    }
    const single = await reserved({})
    expect((await reserved({ n: 10 })) - single).toBeCloseTo((9 * max_tokens * price.output) / 1e6, 2)
  })

  test('is not moved by deleting the sessions that spent', async () => {
    const poor = await droid(booted, await booted.project({ limits: { max_cost_usd: costOfOne / 2 } }))
    expect(await ask(poor, { body: messages() })).toMatchObject({ status: 200 })
    await settled(poor.project_id)
    expect(await ask(poor, { body: messages() })).toMatchObject({ status: 402 })
    await end(booted, poor.session_id)
    await untilStatus(booted, poor.session_id, 'completed')
    const { project_id } = poor
    await booted.ok('session', { action: 'cleanup', project_id, max_age_hours: 0 })
    expect((await usedBy(project_id)).cost_usd).toBeCloseTo(costOfOne, 10)
    const again = { action: 'spawn', project_id, prompt: 'true', new_session: true }
    expect(await booted.fault('session', again)).toMatchObject({ kind: 'exhausted' })
  })
})

describe('what a provider does by itself', () => {
  const search = { type: 'web_search_20250305', name: 'web_search' }
  const own = { name: 'own', input_schema: { type: 'object' } }
  const url = { type: 'url', url: 'http://elsewhere.test/x.png' }
  const pictured = messages({ messages: [{ role: 'user', content: [{ type: 'image', source: url }] }] })

  test.each(['none', 'internal', 'open'] as const)(
    'is allowed by the list of the config with network open only: %s',
    async (network) => {
      const one = network === 'none' ? shared : await droid(booted, await booted.project({ network }))
      expect(await ask(one, { body: messages({ tools: [own, search] }) })).toMatchObject({ status: 200 })
      expect(provider.got.at(-1)!.body.tools).toEqual(network === 'open' ? [own, search] : [own])
      const asked = provider.got.length
      const image = await ask(one, { body: pictured })
      expect(image.status).toBe(network === 'open' ? 200 : 403)
      if (network !== 'open') expect(JSON.parse(image.text).error.message).toContain('image by URL')
      expect(provider.got.length - asked).toBe(network === 'open' ? 1 : 0)
      // Not in the list at all.
      const remote = await ask(one, {
        body: messages({ mcp_servers: [{ type: 'url', url: 'http://x.test' }] }),
      })
      expect(remote.status).toBe(403)
    },
  )

  test('is refused where it is not known, and named', async () => {
    for (const [path, body] of [
      ['/anthropic/v1/messages', messages({ tools: [own, { type: 'teleport_20300101', name: 't' }] })],
      ['/openai/v1/responses', { model: 'test-m', tools: [{ type: 'teleport' }] }],
      ['/gemini/v1beta/models/test-g:generateContent', { tools: [{ teleport: {} }] }],
    ] as const) {
      const { status, text } = await ask(shared, { path, body })
      expect(status).toBe(403)
      expect(JSON.parse(text).error.message).toContain('teleport')
    }
  })
})

test.each([
  '/anthropic/v1/models/..%2f..%2fsecret',
  '/anthropic/v1/models/%2e%2e%2f%2e%2e%2fsecret',
  '/anthropic/v1/models/%252e%252e%252fsecret',
  '/anthropic/v1/models/%2e%2e',
  '/anthropic/v1/models/..',
  '/anthropic/v1/models/x%5c..%5csecret',
  '/anthropic/v1/models/x%00',
  '/anthropic/v1/models/%e2%80%a5',
  '/anthropic/v1/models/x%3fadmin=1',
  '/anthropic//v1/models',
  '/anthropic/./v1/models',
  '/openai/../anthropic/v1/organizations',
  'http://elsewhere.test/anthropic/v1/models',
  '/openai/v1/models/a/..%2f..%2fsecret',
])('the path %s is not passed on', async (path) => {
  const asked = provider.got.length
  expect(await ask(shared, { path, method: 'GET' })).toMatchObject({ status: 404 })
  expect(provider.got.length).toBe(asked)
})

test('a path that is allowed is passed on in one spelling, without headers that are not on the list', async () => {
  const headers = {
    'openai-organization': 'other',
    'x-amz-target': 'x',
    'x-forwarded-host': 'elsewhere.test',
    'anthropic-beta': 'some-beta-2025-01-01',
    te: 'trailers',
  }
  expect(
    await ask(shared, { path: '/anthropic/v1/%6dodels/test%2Dm', method: 'GET', headers }),
  ).toMatchObject({
    status: 200,
  })
  const { url, headers: sent } = provider.got.at(-1)!
  expect(url).toBe('/v1/models/test-m')
  expect(sent['anthropic-beta']).toBe('some-beta-2025-01-01')
  expect(Object.keys(sent).filter((name) => /organization|amz|forwarded|^te$/.test(name))).toEqual([])
})

test.each(['echo in error', 'echo in stream'])(
  'a key that a provider repeats does not reach the droid: %s',
  async (what) => {
    const { status, headers, text } = await ask(shared, { body: told(what) })
    expect(status).toBe(what === 'echo in error' ? 401 : 200)
    // The rest of the answer is there, the key is masked in it.
    expect(text).toContain('*'.repeat(key.length))
    const all = JSON.stringify(headers) + text
    expect(all).not.toContain(key)
    for (const shift of [0, 1, 2]) {
      const encoded = Buffer.from(`${'u:'.slice(0, shift)}${key}`).toString('base64')
      expect(all).not.toContain(encoded.slice(8, 40))
    }
    expect(all).not.toContain(key.slice(11))
  },
)

test('bodies that take long to read do not block the server', { timeout: 120_000 }, async () => {
  const megabyte = 1024 * 1024
  const filled = (size: number, piece: string) => piece.repeat(Math.floor(size / piece.length))
  const bodies = [
    `{"model":"test-m","max_tokens":1,"stream_options":{},"stream":true,"x":[${filled(30 * megabyte, '[],')}1]}`,
    `{"model":"test-m","max_tokens":1,"stream_options":{},"stream":true,"x":${filled(30 * megabyte, '[')}`,
    `{"model":"test-m","max_tokens":1,"stream_options":{},"stream":true,"x":"${filled(30 * megabyte, 'word ')}"}`,
    `{"model":"test-m","max_tokens":1,"stream_options":{},"stream":true,"x":[${filled(3.5 * megabyte, '{"k":1},')}1]}`,
  ].map((text) => Buffer.from(text))
  const small = Buffer.from(`{"model":"test-m","x":${filled(7000, '[')}`)
  const path = '/openai/v1/chat/completions'
  const rich = await droid(booted, await booted.project({ limits: { max_cost_usd: 0 } }))
  const elsewhere = await booted.project()
  let statuses: number[] = []
  const latencies = await latenciesDuring(booted, elsewhere, async () => {
    const answers = await Promise.all([
      ...bodies.map((body) => ask(rich, { path, body })),
      ...Array.from({ length: 50 }, () => ask(rich, { path, body: small })),
    ])
    statuses = answers.map(({ status }) => status)
  })
  expect(statuses.slice(0, 4)).toEqual([400, 400, 200, 200])
  expect(new Set(statuses.slice(4))).toEqual(new Set([400]))
  expectHealthy('bodies that take long to read', latencies)
})

test('a request whose server is killed in the middle is charged in full after the restart', {
  timeout: 60_000,
}, async () => {
  const one = await droid(booted, await booted.project())
  const asking = open(one, { body: told('hang', { stream: true }) })
  const [answer] = (await once(asking, 'response')) as [IncomingMessage]
  answer.on('error', () => undefined)
  await once(answer, 'data')
  const { reserved_usd, cost_usd } = await usedBy(one.project_id)
  expect(reserved_usd).toBeGreaterThan((max_tokens * price.output) / 1e6)
  expect(cost_usd).toBe(0)
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
  const after = await settled(one.project_id)
  expect(after.cost_usd).toBeCloseTo(reserved_usd, 10)
  const events = (await history(booted, one.session_id)).filter(({ type }) => type === 'usage')
  expect(events).toMatchObject([{ source: 'gateway', model: 'test-model', estimated: true }])
  // One that is answered after the restart costs what it used.
  const cost = await costOf(one.project_id, () =>
    until(async () => (await ask(one, { body: messages() })).status === 200, { what: 'it is answered' }),
  )
  expect(cost).toBeCloseTo(costOfOne, 10)
})
