import { expect, test } from 'vitest'
import { createWake } from './wake.ts'

const signal = new AbortController().signal
const long = { signal, timeout_ms: 60_000 }

test('news between reading and waiting is not missed', async () => {
  const wake = createWake()
  const seen = wake.seen('a')
  wake.tell(['a'])
  await wake.news('a', seen, long)
})

test('a waiter is woken for its own key only', async () => {
  const wake = createWake()
  const woken: string[] = []
  const a = wake.news('a', wake.seen('a'), long).then(() => woken.push('a'))
  const b = wake.news('b', wake.seen('b'), long).then(() => woken.push('b'))
  wake.tell(['b'])
  await b
  expect(woken).toEqual(['b'])
  wake.tell(['a'])
  await a
})

test('time and signal end the wait', async () => {
  const wake = createWake()
  await wake.news('a', 0, { signal, timeout_ms: 1 })
  const ending = new AbortController()
  const waiting = wake.news('a', 0, { signal: ending.signal, timeout_ms: 60_000 })
  ending.abort()
  await waiting
})
