import { expect, test } from 'vitest'
import { createLifetimes } from '../auth/lifetimes.ts'
import { createOpenStreams } from '../auth/open-streams.ts'
import { createLog } from '../log.ts'
import { createWatchedStreams } from './streams.ts'

const caller = {
  kind: 'token' as const,
  id: 'tok_1',
  name: 'test',
  scope: { kind: 'admin' as const, read_only: false },
  token_id: 'tok_1',
  expires_at: null,
}

const left = new AbortController().signal

async function opened() {
  const lifetimes = createLifetimes()
  const open = createOpenStreams({ per_token: 1, per_server: 10, lifetimes })
  const streams = createWatchedStreams(open, createLog({ write() {} }))
  const state = { ended: 0, cancelled: false }
  let out!: ReadableStreamDefaultController<Uint8Array>
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      out = controller
    },
    cancel: () => {
      state.cancelled = true
    },
  })
  const answer = async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  const response = await streams.watch(caller, left, answer, () => state.ended++)
  return { lifetimes, streams, state, out, response }
}

test('passes on what is sent, until the source ends', async () => {
  const { state, out, response } = await opened()
  out.enqueue(Buffer.from('one'))
  out.close()
  expect(await response.text()).toBe('one')
  expect(state.ended).toBe(1)
})

test('can be ended from outside, and by its reader', async () => {
  const first = await opened()
  first.lifetimes.revoke(['tok_2'])
  expect(first.state.ended).toBe(0)
  first.lifetimes.revoke(['tok_1'])
  expect(await first.response.text()).toBe('')
  expect(first.state).toEqual({ ended: 1, cancelled: true })
  const second = await opened()
  await second.response.body?.cancel()
  await expect.poll(() => second.state).toEqual({ ended: 1, cancelled: true })
})

test('cuts off a reader that does not keep up', async () => {
  const { state, out, response } = await opened()
  for (let sent = 0; sent < 20; sent++) out.enqueue(new Uint8Array(128 * 1024))
  await expect.poll(() => state.ended).toBe(1)
  await expect(response.text()).rejects.toThrow('does not keep up')
})

test('takes a place before it asks, and keeps it only for a stream', async () => {
  const { streams, response } = await opened()
  await expect(streams.watch(caller, left, () => Promise.reject(new Error('asked')))).rejects.toThrow(
    '1 open streams',
  )
  await response.body?.cancel()
  const other = () => streams.watch(caller, left, async () => Response.json({}))
  await expect.poll(other).toMatchObject({ status: 200 })
  expect(await other()).toMatchObject({ status: 200 })
  await expect(streams.watch(caller, left, () => Promise.reject(new Error('failed')))).rejects.toThrow(
    'failed',
  )
  expect(await other()).toMatchObject({ status: 200 })
})

test('gives its place back when the reader left before the stream began', async () => {
  const open = createOpenStreams({ per_token: 1, per_server: 10, lifetimes: createLifetimes() })
  const streams = createWatchedStreams(open, createLog({ write() {} }))
  const answer = async () =>
    new Response(new ReadableStream(), { headers: { 'content-type': 'text/event-stream' } })
  for (let again = 0; again < 3; again++)
    expect(await (await streams.watch(caller, AbortSignal.abort(), answer)).text()).toBe('')
})
