// A server from npm by each transport: what it offers, and what its tools answer.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../../internal/log.ts'
import type { CallOptions, UpstreamTransport } from '../../../internal/upstream/upstream.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import { contentOf, options, textOf } from '../../fixtures/upstream/options.ts'
import {
  everything,
  type HttpServer,
  http,
  specOf,
  startHttp,
  stdio,
} from '../../fixtures/upstream/servers.ts'

const upstreams = createUpstreams({ log: createLog({ level: 'error' }), version: '0.0.0' })
const servers: HttpServer[] = []
afterAll(async () => {
  await upstreams.close()
  await Promise.all(servers.map((server) => server.stop()))
})

const transports: [string, () => Promise<UpstreamTransport>][] = [
  ['stdio', async () => stdio(everything, ['stdio'])],
  [
    'Streamable HTTP',
    async () => {
      const server = await startHttp(everything, ['streamableHttp'], '/mcp')
      servers.push(server)
      return http('http', server.url)
    },
  ],
  [
    'SSE',
    async () => {
      const server = await startHttp(everything, ['sse'], '/sse')
      servers.push(server)
      return http('sse', server.url)
    },
  ],
]

describe.each(transports)('server-everything by %s', (transport, open) => {
  let id: string
  beforeAll(async () => {
    const spec = specOf(await open())
    id = spec.id
    upstreams.configure(spec)
  })

  it('is not opened before it is used', () => {
    expect(upstreams.status(id)).toMatchObject({ state: 'configured', connected_at: null })
  })

  it('is discovered with its schemas', async () => {
    const found = await upstreams.discover(id)
    expect(found.identity).toMatchObject({ name: expect.stringContaining('everything') })
    const echo = found.tools.find(({ name }) => name === 'echo')
    expect(echo?.inputSchema).toMatchObject({ type: 'object', required: ['message'] })
    expect(found.prompts.length).toBeGreaterThan(0)
    expect(found.resource_templates.length).toBeGreaterThan(0)
    expect(upstreams.status(id)).toMatchObject({
      state: 'connected',
      failures: 0,
      protocol_version: '2025-11-25',
    })
  })

  it('answers calls', async () => {
    let sent = 0
    const outcome = await upstreams.call(
      id,
      { tool: 'echo', arguments: { message: 'hello' } },
      options({ onSent: async () => void sent++ }),
    )
    expect(contentOf(outcome)).toEqual([{ type: 'text', text: 'Echo: hello' }])
    expect(sent).toBe(1)
  })

  it('passes images and structured content through', async () => {
    const image = await upstreams.call(id, { tool: 'get-tiny-image', arguments: {} }, options())
    expect(contentOf(image)).toContainEqual(expect.objectContaining({ type: 'image', mimeType: 'image/png' }))
    const weather = await upstreams.call(
      id,
      { tool: 'get-structured-content', arguments: { location: 'New York' } },
      options(),
    )
    expect(weather).toMatchObject({
      kind: 'result',
      result: { structuredContent: { conditions: expect.any(String) } },
    })
  })

  it('reports progress', async () => {
    const seen: number[] = []
    await upstreams.call(
      id,
      { tool: 'trigger-long-running-operation', arguments: { duration: 1, steps: 4 } },
      options({ progress: ({ progress }) => void seen.push(progress) }),
    )
    expect(seen.length).toBeGreaterThan(1)
    expect(seen).toEqual(seen.toSorted((a, b) => a - b))
  })

  it('is cancelled', async () => {
    const controller = new AbortController()
    const call = upstreams.call(
      id,
      { tool: 'trigger-long-running-operation', arguments: { duration: 60, steps: 600 } },
      options({ signal: controller.signal, progress: () => controller.abort() }),
    )
    await expect(call).rejects.toMatchObject({ kind: 'unavailable', outcome: 'unknown' })
  })

  it('times out without progress', async () => {
    const call = upstreams.call(
      id,
      { tool: 'trigger-long-running-operation', arguments: { duration: 30, steps: 1 }, timeout_seconds: 0.3 },
      options(),
    )
    await expect(call).rejects.toMatchObject({ kind: 'timeout', outcome: 'unknown' })
    const after = await upstreams.call(id, { tool: 'echo', arguments: { message: 'still here' } }, options())
    expect(contentOf(after)).toEqual([{ type: 'text', text: 'Echo: still here' }])
  })

  it('reports an unknown tool as its answer', async () => {
    const call = upstreams.call(id, { tool: 'no-such-tool', arguments: {} }, options())
    await expect(
      call.then((outcome) => {
        if (outcome.kind === 'result' && outcome.result.isError) throw { outcome: 'answered' }
      }),
    ).rejects.toMatchObject({ outcome: 'answered' })
  })

  it('gives prompts and resources', async () => {
    const prompt = await upstreams.getPrompt(id, { name: 'simple-prompt' }, options())
    expect(prompt.messages).toHaveLength(1)
    const { resources } = await upstreams.discover(id)
    const read = await upstreams.readResource(id, resources[0]!.uri as string, options())
    expect(read.contents).toHaveLength(1)
  })

  it('asks its caller, also while another session calls, where the transport tells the calls apart', async () => {
    const asked: string[] = []
    const onInput =
      (key: string): CallOptions['onInput'] =>
      async () => {
        asked.push(key)
        return { action: 'decline' }
      }
    const other = new AbortController()
    const slow = upstreams
      .call(
        id,
        { tool: 'trigger-long-running-operation', arguments: { duration: 5, steps: 50 } },
        options({ fair_key: 'a', signal: other.signal, onInput: onInput('a') }),
      )
      .catch(() => undefined)
    const ask = () =>
      upstreams.call(
        id,
        { tool: 'trigger-elicitation-request', arguments: {} },
        options({ fair_key: 'b', onInput: onInput('b') }),
      )
    const answer = transport === 'Streamable HTTP' ? await ask() : undefined
    other.abort()
    await slow
    const text = textOf(answer ?? (await ask()))
    expect(text).toContain('declined')
    expect(asked).toEqual(['b'])
  })
})
