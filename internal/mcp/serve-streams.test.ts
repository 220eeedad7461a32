import { expect, test } from 'vitest'
import { createLog } from '../log.ts'
import { createWatchedStreams } from './serve-streams.ts'

const caller = {
  kind: 'token' as const,
  id: 'tok_1',
  name: 'test',
  scope: { kind: 'admin' as const, read_only: false },
  token_id: 'tok_1',
}

function opened(streams = createWatchedStreams(createLog({ write() {} }))) {
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
  const response = streams.watch(new Response(body, { status: 200 }), caller, () => state.ended++)
  return { streams, state, out, response }
}

test('passes on what is sent, until the source ends', async () => {
  const { state, out, response } = opened()
  out.enqueue(Buffer.from('one'))
  out.close()
  expect(await response.text()).toBe('one')
  expect(state.ended).toBe(1)
})

test('can be ended from outside, and by its reader', async () => {
  const first = opened()
  first.streams.end(() => false)
  expect(first.state.ended).toBe(0)
  first.streams.end(() => true)
  expect(await first.response.text()).toBe('')
  expect(first.state).toEqual({ ended: 1, cancelled: true })
  const second = opened()
  await second.response.body?.cancel()
  await expect.poll(() => second.state).toEqual({ ended: 1, cancelled: true })
})

test('cuts off a reader that does not keep up', async () => {
  const { state, out, response } = opened()
  for (let sent = 0; sent < 20; sent++) out.enqueue(new Uint8Array(128 * 1024))
  await expect.poll(() => state.ended).toBe(1)
  await expect(response.text()).rejects.toThrow('does not keep up')
})
