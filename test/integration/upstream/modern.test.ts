// A server of the 2026 era by stdio and by HTTP: input as an outcome, headers that mirror arguments, subscriptions, cancellation.
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../../internal/log.ts'
import type { UpstreamTransport } from '../../../internal/upstream/upstream.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import { options, textOf } from '../../fixtures/upstream/options.ts'
import { type HttpServer, http, specOf, startHttp, stdio } from '../../fixtures/upstream/servers.ts'
import { until } from '../../harness/wait.ts'

const file = join(import.meta.dirname, '../../fixtures/upstream/modern-server.ts')
const upstreams = createUpstreams({ log: createLog({ write: () => undefined }), version: '0.0.0' })
let server: HttpServer
beforeAll(async () => {
  server = await startHttp(file, ['http'], '/mcp')
})
afterAll(async () => {
  await upstreams.close()
  await server.stop()
})

function open(transport: UpstreamTransport): string {
  const spec = specOf(transport)
  upstreams.configure(spec)
  return spec.id
}
const call = (id: string, tool: string, args: Record<string, unknown>, more = {}) =>
  upstreams.call(id, { tool, arguments: args }, options(more))

describe.each([
  ['stdio', () => stdio(file)],
  ['HTTP', () => http('http', server.url)],
])('by %s', (_, transport) => {
  let id: string
  beforeAll(() => {
    id = open(transport())
  })

  it('is connected in its era', async () => {
    const found = await upstreams.discover(id)
    expect(found).toMatchObject({ identity: { name: 'modern', version: '2.0.0' }, instructions: 'Be kind.' })
    expect(found.tools.map(({ name }) => name)).toContain('deploy')
    expect(found.cache_scope).toBe('private')
    expect(found.ttl_ms).toBe(0)
    expect(upstreams.status(id).protocol_version).toBe('2026-07-28')
    expect(textOf(await call(id, 'echo', { message: 'hi' }))).toBe('hi')
  })

  it('asks by ending the call; the answer goes with a new call, and its state comes back unchanged', async () => {
    const asked = await call(id, 'deploy', { env: 'prod' })
    expect(asked).toEqual({
      kind: 'input_required',
      requests: {
        confirm: {
          id: 'confirm',
          method: 'elicitation/create',
          params: expect.objectContaining({
            message: 'Deploy to prod?',
            requestedSchema: {
              type: 'object',
              properties: { sure: { type: 'boolean' } },
              required: ['sure'],
            },
          }),
        },
      },
      request_state: 'state "of" prod\n✓',
    })
    const request_state = asked.kind === 'input_required' ? asked.request_state : undefined
    const input = {
      responses: { confirm: { action: 'accept' as const, content: { sure: true } } },
      request_state,
    }
    const answered = await upstreams.call(
      id,
      { tool: 'deploy', arguments: { env: 'prod' }, input },
      options(),
    )
    expect(JSON.parse(textOf(answered))).toEqual({
      env: 'prod',
      confirm: { action: 'accept', content: { sure: true } },
      state: 'state "of" prod\n✓',
    })
  })

  it('reports progress, which extends the time-out', async () => {
    const seen: number[] = []
    const outcome = await upstreams.call(
      id,
      { tool: 'slow', arguments: { steps: 8, every_ms: 100 }, timeout_seconds: 0.5 },
      options({ progress: ({ progress }) => void seen.push(progress) }),
    )
    expect(textOf(outcome)).toBe('done')
    expect(seen.length).toBeGreaterThan(2)
  })
})

describe('by HTTP', () => {
  it('arguments are mirrored in headers, also when the definition was not known', async () => {
    const id = open(http('http', server.url))
    // Refused without the header, listed, sent again.
    expect(textOf(await call(id, 'route', { region: 'eu-west ✓' }))).toBe('routed to eu-west ✓')
    await upstreams.discover(id)
    expect(textOf(await call(id, 'route', { region: 'us' }))).toBe('routed to us')
    const requests = (await (await fetch(server.url.replace('/mcp', '/requests'))).json()) as Record<
      string,
      string
    >[]
    const calls = requests.filter((headers) => headers['mcp-name'] === 'route')
    expect(calls.map((headers) => headers['mcp-param-region'])).toEqual([
      undefined,
      '=?base64?ZXUtd2VzdCDinJM=?=',
      'us',
    ])
    expect(calls.every((headers) => headers['mcp-method'] === 'tools/call')).toBe(true)
  })

  it('changed lists are told by a subscription', async () => {
    const id = open(http('http', server.url))
    let news = 0
    const stop = upstreams.subscribe((one) => {
      if (one.id === id && one.list_changed) news++
    })
    const before = await upstreams.discover(id)
    // The subscription is opened beside the connection.
    await until(
      async () => {
        await call(id, 'grow', {})
        return news > 0
      },
      { what: 'news of the list', every_ms: 100 },
    )
    expect((await upstreams.discover(id)).tools.length).toBeGreaterThan(before.tools.length)
    stop()
  })

  it('cancelling a call reaches the server', async () => {
    const id = open(http('http', server.url))
    const controller = new AbortController()
    const slow = call(
      id,
      'slow',
      { steps: 100, every_ms: 50 },
      {
        signal: controller.signal,
        progress: () => controller.abort(),
      },
    )
    await expect(slow).rejects.toMatchObject({ outcome: 'unknown' })
    await until(
      async () => (await upstreams.discover(id)).tools.some(({ name }) => name.startsWith('cancelled_')),
      { what: 'the server has seen it' },
    )
  })
})
