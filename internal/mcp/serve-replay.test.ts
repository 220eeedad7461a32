import { expect, test } from 'vitest'
import { createReplay, type Replay } from './serve-replay.ts'

const note = (data: unknown) => ({
  jsonrpc: '2.0' as const,
  method: 'notifications/message',
  params: { data },
})
async function after(replay: Replay, id: string) {
  const seen: unknown[] = []
  const stream = await replay.replayEventsAfter(id, {
    send: async (_id, message) => void seen.push('params' in message ? message.params?.data : message),
  })
  return { stream, seen }
}

test('gives back what one stream sent after an id, in order, and nothing of another', async () => {
  const replay = createReplay()
  const first = await replay.storeEvent('a', note(1))
  await replay.storeEvent('b', note('not this'))
  await replay.storeEvent('a', {} as never)
  await replay.storeEvent('a', note(2))
  await replay.storeEvent('a', note(3))
  expect(await after(replay, first)).toEqual({ stream: 'a', seen: [2, 3] })
  expect(await replay.getStreamIdForEventId(first)).toBe('a')
})

test.each(['', 'x', '99.a', '1', '-1.a'])('does not know the id "%s"', async (id) => {
  const replay = createReplay()
  await replay.storeEvent('a', note(1))
  expect(await replay.getStreamIdForEventId(id)).toBeUndefined()
})

test('keeps no more than its bounds, but always the newest', async () => {
  const replay = createReplay()
  const first = await replay.storeEvent('a', note(0))
  for (let n = 1; n <= 300; n++) await replay.storeEvent('a', note(n))
  expect((await after(replay, first)).seen).toHaveLength(128)
  await replay.storeEvent('a', note('x'.repeat(2_000_000)))
  expect((await after(replay, first)).seen).toHaveLength(1)
  replay.expire(Date.now() + 6 * 60_000)
  expect((await after(replay, first)).seen).toEqual([])
})
