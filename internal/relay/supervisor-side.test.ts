import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Fault } from '../fault.ts'
import type { SupervisorLink } from './supervisor-side.ts'
import { watchHeartbeat } from './supervisor-side.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function link(silent: () => boolean) {
  const ended = Promise.withResolvers<Fault>()
  const seen = { pings: 0, closed: undefined as Fault | undefined }
  const peer = {
    wasSilent: silent,
    closed: ended.promise,
    close: (why: Fault) => {
      seen.closed = why
      ended.resolve(why)
    },
  }
  const send = async () => {
    seen.pings++
    return {}
  }
  return { seen, link: { peer, send } as unknown as Pick<SupervisorLink, 'peer' | 'send'> }
}

test('one that answers, or only says something now and then, is kept', async () => {
  let beats = 0
  const { seen, link: it } = link(() => ++beats % 3 !== 0)
  watchHeartbeat(it, { interval_ms: 100, paused: () => false, on_given_up: () => undefined })
  await vi.advanceTimersByTimeAsync(2000)
  expect(seen).toEqual({ pings: 20, closed: undefined })
})

test('one that is silent for three beats is given up, once', async () => {
  const { seen, link: it } = link(() => true)
  const given_up = vi.fn()
  watchHeartbeat(it, { interval_ms: 100, paused: () => false, on_given_up: given_up })
  await vi.advanceTimersByTimeAsync(250)
  expect(seen.closed).toBeUndefined()
  await vi.advanceTimersByTimeAsync(1000)
  expect(seen.closed).toMatchObject({ kind: 'timeout' })
  expect(given_up).toHaveBeenCalledTimes(1)
})

test('the silence of a paused container does not count', async () => {
  let paused = true
  const { seen, link: it } = link(() => true)
  watchHeartbeat(it, { interval_ms: 100, paused: () => paused, on_given_up: () => undefined })
  await vi.advanceTimersByTimeAsync(5000)
  expect(seen.closed).toBeUndefined()
  paused = false
  await vi.advanceTimersByTimeAsync(300)
  expect(seen.closed).toMatchObject({ kind: 'timeout' })
})
