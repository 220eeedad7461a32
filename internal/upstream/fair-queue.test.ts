import { expect, it } from 'vitest'
import { createFairQueue } from './fair-queue.ts'

const never = new AbortController().signal

it('those who wait have turns by key, and one with many calls does not delay others', async () => {
  const queue = createFairQueue(2, 'x')
  const order: string[] = []
  const leaves: (() => void)[] = []
  const enter = (key: string) =>
    queue.enter(key, never).then((leave) => {
      order.push(key)
      leaves.push(leave)
    })
  const all = [...Array(5).fill('a'), 'b', 'b', 'c'].map(enter)
  for (let left = 0; left < all.length; left++) {
    await Promise.resolve().then(() => new Promise((resolve) => setImmediate(resolve)))
    expect(queue.running).toBeLessThanOrEqual(2)
    leaves[left]?.()
  }
  await Promise.all(all)
  expect(order).toEqual(['a', 'a', 'a', 'b', 'c', 'a', 'b', 'a'])
})

it('who gives up loses the place, and giving it back twice frees one only', async () => {
  const queue = createFairQueue(1, 'x')
  const leave = await queue.enter('a', never)
  const controller = new AbortController()
  const given_up = queue.enter('b', controller.signal)
  const next = queue.enter('c', never)
  controller.abort(new Error('enough'))
  await expect(given_up).rejects.toThrow('enough')
  expect(queue.waiting).toBe(1)
  leave()
  leave()
  await next
  expect([queue.running, queue.waiting]).toEqual([1, 0])
})

it('has an end, for each key and for all', async () => {
  const queue = createFairQueue(1, 'upstream "x"')
  await queue.enter('a', never)
  for (let n = 0; n < 128; n++) void queue.enter('a', never)
  await expect(queue.enter('a', never)).rejects.toMatchObject({ kind: 'exhausted' })
  for (let key = 0; key < 14; key++) for (let n = 0; n < 64; n++) void queue.enter(`k${key}`, never)
  await expect(queue.enter('z', never)).rejects.toMatchObject({ kind: 'exhausted' })
})

it('a raised limit lets more in', async () => {
  const queue = createFairQueue(1, 'x')
  await queue.enter('a', never)
  const second = queue.enter('a', never)
  queue.setLimit(2)
  await second
  expect(queue.running).toBe(2)
})
