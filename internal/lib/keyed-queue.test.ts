import { expect, test } from 'vitest'
import { createKeyedQueue } from './keyed-queue.ts'

test('one key is one after another, also after a failure; keys do not wait for each other', async () => {
  const serial = createKeyedQueue()
  const order: string[] = []
  const gate = Promise.withResolvers<void>()
  const first = serial('a', async () => {
    await gate.promise
    order.push('a1')
    throw new Error('no')
  })
  const second = serial('a', async () => void order.push('a2'))
  await serial('b', async () => void order.push('b'))
  expect(serial.busy('a')).toBe(true)
  gate.resolve()
  await expect(first).rejects.toThrow('no')
  await second
  expect(order).toEqual(['b', 'a1', 'a2'])
  expect(serial.busy('a')).toBe(false)
})

test('the running task can be interrupted', async () => {
  const serial = createKeyedQueue()
  const work = serial(
    'a',
    (signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  )
  await Promise.resolve()
  await Promise.resolve()
  serial.interrupt('a', new Error('deleted'))
  await expect(work).rejects.toThrow('deleted')
})

test('a failure is reported to its own caller only, and the next task of the key runs', async () => {
  const serial = createKeyedQueue()
  const gate = Promise.withResolvers<void>()
  const order: string[] = []
  const first = serial('a', async () => {
    await gate.promise
    order.push('first')
    throw new Error('failed')
  })
  const second = serial('a', async () => {
    order.push('second')
    return 'result'
  })
  await serial('b', async () => void order.push('other'))
  gate.resolve()
  await expect(first).rejects.toThrow('failed')
  expect(await second).toBe('result')
  expect(order).toEqual(['other', 'first', 'second'])
})
