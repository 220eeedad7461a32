import { expect, test } from 'vitest'
import { createReplay, type Replay } from './replay.ts'

const note = (data: unknown) => ({
  jsonrpc: '2.0' as const,
  method: 'notifications/message',
  params: { data },
})
const answer = (id: string | number) => ({ jsonrpc: '2.0' as const, id, result: {} })
const opening = {} as never
const ofEarlierProcess = (id: string) => `000000000000${id.slice(12)}`

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
  await replay.storeEvent('a', opening)
  await replay.storeEvent('a', note(2))
  await replay.storeEvent('a', note(3))
  expect(await after(replay, first)).toEqual({ stream: 'a', seen: [2, 3] })
  expect(await replay.getStreamIdForEventId(first)).toBe('a')
})

test.each(['', 'x', '99.a', '1', '-1.a', '000000000000.1', '000000000000.-1.a'])(
  'does not know the id "%s"',
  async (id) => {
    const replay = createReplay()
    await replay.storeEvent('a', note(1))
    expect(await replay.getStreamIdForEventId(id)).toBeUndefined()
    expect(replay.missedBy(id)).toBeUndefined()
  },
)

test('does not know an id of this process that it has not given', async () => {
  const replay = createReplay()
  const id = await replay.storeEvent('a', note(1))
  expect(await replay.getStreamIdForEventId(id.replace('.1.', '.2.'))).toBeUndefined()
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

test('knows from an id which requests an earlier process left without an answer', async () => {
  const replay = createReplay()
  const opened = await replay.during([7, 'seven'], () => replay.storeEvent('a', opening))
  expect(replay.missedBy(opened)).toMatchObject({ of_request: true, lost: [], over: false })
  expect(replay.missedBy(ofEarlierProcess(opened))).toMatchObject({ lost: [7, 'seven'] })
  const one = await replay.storeEvent('a', answer(7))
  expect(replay.missedBy(ofEarlierProcess(one))).toMatchObject({ lost: ['seven'] })
  const both = await replay.storeEvent('a', answer('seven'))
  expect(replay.missedBy(both)).toMatchObject({ of_request: true, lost: [], over: true })
  expect(replay.missedBy(ofEarlierProcess(both))).toMatchObject({ lost: [] })
})

test('the ids of the GET stream carry the requests that were announced, until they are answered', async () => {
  const replay = createReplay()
  let told = 0
  replay.onAnswered = () => told++
  await replay.during([1, 2], () => replay.storeEvent('a', opening))
  await replay.storeEvent('a', answer(1))
  expect(replay.announce([1])).toBe(false)
  expect(replay.announce([1, 2])).toBe(true)
  const id = replay.openingId(null)
  expect(replay.missedBy(id)).toMatchObject({ of_request: false, lost: [] })
  expect(replay.missedBy(ofEarlierProcess(id))).toMatchObject({ of_request: false, lost: [2] })
  expect(told).toBe(0)
  await replay.storeEvent('a', answer(2))
  expect(told).toBe(1)
  expect(replay.missedBy(ofEarlierProcess(replay.openingId(null)))).toMatchObject({ lost: [] })
})

test('leaves out of an id what would not fit into a header', async () => {
  const replay = createReplay()
  const id = await replay.during(['x'.repeat(2000)], () => replay.storeEvent('a', opening))
  expect(id.length).toBeLessThan(100)
})

test('gives the GET stream of a later process all that was kept for it', async () => {
  const replay = createReplay()
  const fresh = replay.openingId(null)
  replay.keep(note(1))
  replay.keep(note(2))
  for (const id of [fresh, ofEarlierProcess(fresh), replay.openingId(ofEarlierProcess(fresh))])
    expect((await after(replay, id)).seen).toEqual([1, 2])
  expect((await after(replay, replay.openingId(null))).seen).toEqual([])
})
