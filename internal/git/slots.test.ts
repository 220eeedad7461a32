import { expect, test } from 'vitest'
import { createSlots } from './slots.ts'

const never = new AbortController().signal

test('so many at once for each container, the others in order', async () => {
  const take = createSlots(2, 10_000)
  const order: number[] = []
  const [one, two] = [await take('a', never), await take('a', never)]
  const later = [3, 4].map(async (number) => {
    const slot = await take('a', never)
    order.push(number)
    return slot
  })
  await (await take('b', never))[Symbol.dispose]()
  expect(order).toEqual([])
  one[Symbol.dispose]()
  const third = await later[0]!
  expect(order).toEqual([3])
  two[Symbol.dispose]()
  const fourth = await later[1]!
  expect(order).toEqual([3, 4])
  third[Symbol.dispose]()
  fourth[Symbol.dispose]()
})

test('who gives up or waits too long leaves its place to the next', async () => {
  const take = createSlots(1, 20)
  const leave = new AbortController()
  const one = await take('a', never)
  const given_up = take('a', leave.signal)
  const late = take('a', never)
  leave.abort(new Error('gone'))
  await expect(given_up).rejects.toThrow('gone')
  await expect(late).rejects.toMatchObject({ kind: 'unavailable' })
  one[Symbol.dispose]()
  const next = await take('a', never)
  next[Symbol.dispose]()
})
