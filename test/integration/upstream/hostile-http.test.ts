// An HTTP server that misbehaves: calls end with an error that says so, soon, and nothing is held for it.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createLog } from '../../../internal/log.ts'
import { createGuardedFetch } from '../../../internal/upstream/net/guarded-fetch.ts'
import { createUpstreams } from '../../../internal/upstream/upstreams.ts'
import { type HostileHttp, startHostileHttp } from '../../fixtures/upstream/hostile/http-server.ts'
import { options, textOf } from '../../fixtures/upstream/options.ts'
import { specOf } from '../../fixtures/upstream/servers.ts'
import { until } from '../../harness/wait.ts'

const upstreams = createUpstreams({ log: createLog({ write: () => undefined }), version: '0.0.0' })
const fetch = createGuardedFetch({ allow: () => true })
let server: HostileHttp
let id: string
beforeAll(async () => {
  server = await startHostileHttp()
  const spec = specOf({ kind: 'http', url: server.url, headers: {}, fetch })
  id = spec.id
  upstreams.configure(spec)
})
afterAll(async () => {
  await upstreams.close()
  await fetch.close()
  server.stop()
})

const call = (tool: string, args: Record<string, unknown> = {}, timeout_seconds = 5) =>
  upstreams.call(id, { tool, arguments: args, timeout_seconds }, options())

it('answers where nothing is wrong', async () => {
  expect(textOf(await call('fine'))).toBe('ok')
})

it.each(['vanish', 'reset'])(
  'a stream that ends without an answer fails at once, with an unknown outcome (%s)',
  async (tool) => {
    const began = performance.now()
    await expect(call(tool)).rejects.toMatchObject({ kind: 'unavailable', outcome: 'unknown' })
    expect(performance.now() - began).toBeLessThan(2_000)
  },
)

it.each(['huge-event', 'huge-json'])(
  'a result over the limit is refused, one below it passes (%s)',
  async (tool) => {
    await expect(call(tool, { bytes: 5_000_000 })).rejects.toMatchObject({
      kind: 'exhausted',
      outcome: 'answered',
      message: expect.stringContaining('the limit is 1048576'),
    })
    expect(textOf(await call(tool, { bytes: 1_000_000 }))).toHaveLength(1_000_000)
  },
)

it('a result that is expensive to parse is refused', async () => {
  await expect(call('many')).rejects.toMatchObject({ kind: 'exhausted' })
})

it.each(['error', 'page'])('an answer that is none is an error with a short message (%s)', async (tool) => {
  const fault = await call(tool).catch((error: Error) => error)
  expect(fault).toMatchObject({ kind: 'unavailable' })
  expect((fault as Error).message.length).toBeLessThan(1_000)
})

it('a call that times out is cancelled at the server, and its connection is closed', async () => {
  await expect(call('hang', {}, 0.2)).rejects.toMatchObject({ kind: 'timeout', outcome: 'unknown' })
  await until(() => server.seen.cancelled > 0, { what: 'the cancellation has arrived' })
  await until(() => server.seen.open === 0, { what: 'the connection is closed' })
})

it('a session that the server has forgotten is begun again, and the call runs once', async () => {
  expect(textOf(await call('fine'))).toBe('ok')
  const before = server.seen.calls
  server.forget()
  expect(textOf(await call('fine'))).toBe('ok')
  expect(server.seen.calls - before).toBe(1)
  expect(upstreams.status(id)).toMatchObject({ state: 'connected', failures: 0 })
})

it('a stream that ends at once is not opened in a loop', async () => {
  await new Promise((resolve) => setTimeout(resolve, 2_500))
  expect(server.seen.gets).toBeLessThan(20)
})

it('a server that is gone fails calls as not sent, and then at once', async () => {
  server.stop()
  await expect(call('fine')).rejects.toMatchObject({ kind: 'unavailable' })
  await until(() => upstreams.status(id).state !== 'connected', { what: 'the loss is noticed' })
  await expect(call('fine')).rejects.toMatchObject({ kind: 'unavailable', outcome: 'not_sent' })
})
