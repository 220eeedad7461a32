import { expect, test } from 'vitest'
import { createRecentBytes } from './recent-bytes.ts'

test('who sends little is calm, who sends a lot is not, in pieces or at once, until it was silent for a while', () => {
  let now = 0
  const chatty = createRecentBytes(() => now)
  const flooding = createRecentBytes(() => now)
  const calm: boolean[] = []
  for (; now < 10_000; now += 30) {
    calm.push(chatty.isLightWith(400))
    chatty.add(400)
    flooding.add(2_000)
  }
  expect(calm).not.toContain(false)
  expect(flooding.isLightWith(100)).toBe(false)
  now += 10_000
  expect(flooding.isLightWith(100)).toBe(true)
  expect(flooding.isLightWith(100_000)).toBe(false)
})
