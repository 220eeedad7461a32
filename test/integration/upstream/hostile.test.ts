// A stdio server that misbehaves: what it does ends in an error that says so, within limits of time and memory, and others go on.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../../internal/log.ts'
import type { UpstreamSpec, UpstreamStatus } from '../../../internal/upstream/upstream.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import { contentOf, options, resultOf, textOf } from '../../fixtures/upstream/options.ts'
import { everything, specOf, stdio } from '../../fixtures/upstream/servers.ts'
import { until } from '../../harness/wait.ts'

const hostile = join(import.meta.dirname, '../../fixtures/upstream/hostile/server.ts')
const upstreams = createUpstreams({ log: createLog({ write: () => undefined }), version: '0.0.0' })
const directory = mkdtempSync(join(tmpdir(), 'oub-hostile-'))
afterAll(async () => {
  await upstreams.close()
  rmSync(directory, { recursive: true, force: true })
})

function open(mode: string, more: Partial<UpstreamSpec> = {}): string {
  const spec = specOf(stdio(hostile, [mode]), more)
  upstreams.configure(spec)
  return spec.id
}
const call = (id: string, tool: string, args: Record<string, unknown> = {}, more = {}) =>
  upstreams.call(id, { tool, arguments: args }, options(more))

describe('single calls', () => {
  let id: string
  beforeAll(() => {
    id = open('calls')
  })

  it('garbage on stdout and answers in pieces are survived, counted and shown', async () => {
    expect(textOf(await call(id, 'garbage'))).toBe('grüße 😀')
    const { stderr, state } = upstreams.status(id)
    expect(state).toBe('connected')
    expect(stderr.join('\n')).toContain('(6 lines on stdout are no messages)')
    expect(stderr.join('\n')).toContain('npm warn this is no message')
  })

  it('a result over the limit is an error that states both sizes; one below it passes', async () => {
    await expect(call(id, 'huge', { bytes: 3_000_000 })).rejects.toMatchObject({
      kind: 'exhausted',
      outcome: 'answered',
      message: expect.stringMatching(/3000\d{3} bytes; the limit is 1048576/),
    })
    expect(textOf(await call(id, 'huge', { bytes: 1_000_000 })).length).toBe(1_000_000)
  })

  it.each([
    ['many', 'values'],
    ['deep', 'nested deeper'],
  ])('a result that is expensive to parse is refused (%s)', async (tool, words) => {
    await expect(call(id, tool)).rejects.toMatchObject({
      kind: 'exhausted',
      message: expect.stringContaining(words),
    })
  })

  it('fields that nobody knows pass unchanged, in definitions and in results', async () => {
    const { tools } = await upstreams.discover(id)
    expect(tools.find(({ name }) => name === 'extra')).toEqual({
      name: 'extra',
      description: 'Keep \u200b this.',
      inputSchema: { type: 'object', properties: {}, 'x-vendor': { deep: [1, null] } },
      annotations: { readOnlyHint: false, vendorHint: 'kept' },
      vendor_field: { a: 1 },
    })
    expect(resultOf(await call(id, 'extra'))).toEqual({
      content: [
        { type: 'text', text: 'a', annotations: { audience: ['user'] }, vendor: 1 },
        { type: 'hologram', data: 'x' },
        { type: 'resource_link', uri: 'file:///a', name: 'a', _meta: { b: 1 } },
      ],
      structuredContent: { not: 'what the schema says', nested: { unknown: null } },
      _meta: { 'example.com/trace': 't' },
      vendor_result: true,
    })
  })

  it('progress extends the time-out, and its end ends the call', async () => {
    const slow = { count: 8, every_ms: 100 }
    const outcome = await upstreams.call(
      id,
      { tool: 'progress', arguments: slow, timeout_seconds: 0.4 },
      options(),
    )
    expect(textOf(outcome)).toBe('done')
    const silent = upstreams.call(
      id,
      { tool: 'late', arguments: { ms: 800 }, timeout_seconds: 0.4 },
      options(),
    )
    await expect(silent).rejects.toMatchObject({ kind: 'timeout', outcome: 'unknown' })
  })

  it('a question reaches its caller, and the time for the answer does not count', async () => {
    const outcome = await upstreams.call(
      id,
      { tool: 'ask', arguments: {}, timeout_seconds: 0.3 },
      options({
        onInput: async ({ method, params }) => {
          expect(method).toBe('elicitation/create')
          expect(params).toEqual({
            message: 'Which?',
            requestedSchema: { type: 'object', properties: { color: { type: 'string' } } },
          })
          await new Promise((resolve) => setTimeout(resolve, 600))
          return { action: 'accept', content: { color: 'red' } }
        },
      }),
    )
    expect(JSON.parse(textOf(outcome))).toEqual({ action: 'accept', content: { color: 'red' } })
  })

  it('a question while calls of two sessions run is not given to either, and calls run one at a time from then on', async () => {
    const asks = open('calls')
    const inputs: string[] = []
    const onInput = (key: string) => async () => {
      inputs.push(key)
      return { action: 'accept' as const, content: { color: key } }
    }
    const slow = call(asks, 'late', { ms: 300 }, { fair_key: 'a', onInput: onInput('a') })
    const ask = call(asks, 'ask', {}, { fair_key: 'b', onInput: onInput('b') })
    expect(JSON.parse(textOf(await ask))).toEqual({ action: 'cancel' })
    await slow
    expect(inputs).toEqual([])
    const again = await Promise.all([
      call(asks, 'late', { ms: 100 }, { fair_key: 'a', onInput: onInput('a') }),
      call(asks, 'ask', {}, { fair_key: 'b', onInput: onInput('b') }),
    ])
    expect(JSON.parse(textOf(again[1]))).toEqual({ action: 'accept', content: { color: 'b' } })
    expect(inputs).toEqual(['b'])
  })

  it('a crash fails the call as unknown, and the next use starts it again', async () => {
    await expect(call(id, 'crash')).rejects.toMatchObject({ kind: 'unavailable', outcome: 'unknown' })
    expect(upstreams.status(id)).toMatchObject({
      state: 'degraded',
      failures: 1,
      reason: expect.stringContaining('exit code 3'),
    })
    expect(textOf(await call(id, 'late', { ms: 1 }))).toBe('late')
    expect(upstreams.status(id)).toMatchObject({ state: 'connected', failures: 0, reason: null })
  })

  it('a changed list is told once, however often it is announced', async () => {
    let news = 0
    const stop = upstreams.subscribe((one) => {
      if (one.id === id && one.list_changed) news++
    })
    const before = await upstreams.discover(id)
    expect(before.tools.map(({ name }) => name)).toContain('read_notes')
    await call(id, 'rename')
    await until(() => news > 0, { what: 'news of the list' })
    const after = await upstreams.discover(id)
    expect(after.tools.map(({ name }) => name)).toContain('delete_everything')
    stop()
  })

  it('a flood of notifications delays its own upstream only, and costs little', async () => {
    const flooded = open('calls', { timeout_seconds: 20 })
    const other = open('calls')
    await upstreams.discover(flooded)
    await call(other, 'late', { ms: 1 })
    let news = 0
    const stop = upstreams.subscribe((one) => {
      if (one.id === flooded && one.list_changed) news++
    })
    const memory = process.memoryUsage().rss
    const flood = call(flooded, 'flood', { count: 200_000, pad: 200 }).catch((error: unknown) => error)
    const times: number[] = []
    for (let n = 0; n < 50; n++) {
      const from = performance.now()
      await call(other, 'late', { ms: 1 })
      times.push(performance.now() - from)
    }
    expect(times.toSorted((a, b) => a - b)[45]).toBeLessThan(100)
    expect(process.memoryUsage().rss - memory).toBeLessThan(200 * 1024 * 1024)
    expect(news).toBeLessThan(15)
    await upstreams.remove(flooded)
    expect(await flood).toMatchObject({ outcome: 'unknown' })
    stop()
  })
})

describe('as a whole', () => {
  it('a server that never answers initialize is bounded, ended and fails at once after some tries', async () => {
    const id = open('silent')
    const began = performance.now()
    await expect(upstreams.discover(id)).rejects.toMatchObject({ kind: 'timeout' })
    expect(performance.now() - began).toBeLessThan(5_500)
    await upstreams.remove(id)
  })

  it('a crash loop opens the circuit: calls fail at once with the reason and the time', async () => {
    const file = join(directory, 'pids')
    const spec = specOf(stdio(hostile, ['crash'], { HOSTILE_PID_FILE: file }))
    upstreams.configure(spec)
    for (let n = 0; n < 3; n++)
      await expect(call(spec.id, 'late')).rejects.toMatchObject({ outcome: 'not_sent' })
    const status: UpstreamStatus = upstreams.status(spec.id)
    expect(status).toMatchObject({ state: 'error', failures: 3 })
    expect(status.reason).toContain('exit code 7')
    expect(status.stderr.join('\n')).toContain('cannot find module')
    expect(Date.parse(status.retry_at!)).toBeGreaterThan(Date.now())
    const starts = () => readFileSync(file, 'utf8').trim().split('\n').length
    const before = starts()
    const began = performance.now()
    for (let n = 0; n < 100; n++)
      await expect(call(spec.id, 'late')).rejects.toMatchObject({
        kind: 'unavailable',
        outcome: 'not_sent',
        message: expect.stringContaining('exit code 7'),
      })
    expect(performance.now() - began).toBeLessThan(500)
    expect(starts()).toBe(before)
    await upstreams.restart(spec.id)
    expect(upstreams.status(spec.id)).toMatchObject({ state: 'configured', failures: 0, reason: null })
  })

  it('a server that ends at requests it does not know is taken as one of the older era', async () => {
    const id = open('strict')
    expect((await upstreams.discover(id)).identity.name).toBe('hostile')
    expect(upstreams.status(id)).toMatchObject({ state: 'connected', failures: 0 })
  })

  it('a server that does not answer requests it does not know, too, if later', async () => {
    const id = open('deaf')
    await expect(call(id, 'late', { ms: 1 })).resolves.toMatchObject({ kind: 'result' })
  })

  it('a list without an end is an error', async () => {
    const id = open('endless-list')
    await expect(upstreams.discover(id)).rejects.toMatchObject({
      kind: 'exhausted',
      message: expect.stringContaining('64 pages'),
    })
  })

  it('a line without an end ends the connection', async () => {
    const id = open('endless-line')
    await expect(upstreams.discover(id)).rejects.toMatchObject({
      message: expect.stringContaining('a line of more than'),
    })
  })

  it('a flood on stderr is survived', async () => {
    const id = open('stderr-flood')
    expect(textOf(await call(id, 'late', { ms: 1 }))).toBe('late')
    expect(upstreams.status(id).stderr.length).toBeLessThanOrEqual(20)
    await upstreams.remove(id)
  })

  it('a server that hangs is found out by its heartbeat and ended', async () => {
    const id = open('no-ping', { timeout_seconds: 1 })
    await upstreams.discover(id)
    await expect(call(id, 'hang')).rejects.toMatchObject({ kind: 'timeout' })
    await until(() => upstreams.status(id).state !== 'connected', {
      what: 'the connection is given up',
      deadline_ms: 8_000,
    })
    expect(upstreams.status(id).reason).toContain('does not answer')
  })

  it('an unused connection is closed, and opened again', async () => {
    const id = open('calls', { idle_seconds: 0.3 })
    await call(id, 'late', { ms: 1 })
    await until(() => upstreams.status(id).state === 'configured', { what: 'closed when idle' })
    expect(textOf(await call(id, 'late', { ms: 1 }))).toBe('late')
  })

  it('calls beyond the limit wait in turns by session', async () => {
    const id = open('calls', { concurrency: 1 })
    await upstreams.discover(id)
    const order: string[] = []
    const one = (key: string) =>
      call(id, 'late', { ms: 20 }, { fair_key: key }).then(() => void order.push(key))
    await Promise.all([one('a'), one('a'), one('a'), one('a'), one('b'), one('c')])
    expect(order).toEqual(['a', 'a', 'b', 'c', 'a', 'a'])
  })

  it('hanging calls of one session do not use up the queue of others, and the queue has an end', async () => {
    const id = open('calls', { concurrency: 1, timeout_seconds: 3 })
    await upstreams.discover(id)
    const controller = new AbortController()
    const waiting = Array.from({ length: 200 }, () =>
      call(id, 'hang', {}, { signal: controller.signal, fair_key: 'a' }).catch(
        (error: { kind?: string }) => error.kind,
      ),
    )
    const kinds = await Promise.race([
      Promise.all(waiting.slice(150)),
      new Promise((resolve) => setTimeout(resolve, 1_000, 'late')),
    ])
    expect(kinds).toEqual(Array(50).fill('exhausted'))
    controller.abort()
    await Promise.all(waiting)
    expect(textOf(await call(id, 'late', { ms: 1 }, { fair_key: 'b' }))).toBe('late')
  })
})

it('20 upstreams, of which one hangs, one crash-loops and one does not exist: the others answer everything', async () => {
  const sick = [open('silent'), open('crash')]
  const missing = specOf({ kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {}, fetch })
  upstreams.configure(missing)
  const healthy = Array.from({ length: 17 }, () => {
    const spec = specOf(stdio(everything, ['stdio']), { timeout_seconds: 30 })
    upstreams.configure(spec)
    return spec.id
  })
  await Promise.all(
    healthy.map((id) => until(() => upstreams.discover(id), { what: 'discovered', deadline_ms: 40_000 })),
  )
  const failing = [...sick, missing.id].map((id) => upstreams.discover(id).catch((error: unknown) => error))
  const answers = await Promise.all(
    healthy.flatMap((id) =>
      Array.from({ length: 20 }, async (_, n) => contentOf(await call(id, 'echo', { message: String(n) }))),
    ),
  )
  expect(answers).toHaveLength(340)
  for (const error of await Promise.all(failing))
    expect(error).toMatchObject({ kind: expect.stringMatching(/timeout|unavailable/) })
}, 90_000)
