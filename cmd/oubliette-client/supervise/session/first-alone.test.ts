import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { Droid } from '../../../../internal/droid/droid.ts'
import { createFirstAlone } from './first-alone.ts'

function prepare() {
  const first_alone = createFirstAlone()
  const started: string[] = []
  const opened = new Map<string, PromiseWithResolvers<unknown>>()
  const start = (name: string, command = 'agent') =>
    first_alone(command, () => {
      started.push(name)
      const ready = Promise.withResolvers<unknown>()
      opened.set(name, ready)
      return {
        ready: ready.promise,
        gone: new Promise(() => {}),
        turn: async () => ({ stop_reason: 'end_turn', final_text: name }),
        cancel: async () => undefined,
        answer: () => true,
        end: async () => undefined,
      } as unknown as Droid
    })
  return { start, started, opened }
}

test('the first agent of a container starts alone, the others when it is ready', async () => {
  const { start, started, opened } = prepare()
  start('a')
  const b = start('b')
  start('c')
  start('other', 'another agent')
  await setImmediate()
  expect(started).toEqual(['a', 'other'])
  expect(b.answer('req_1', { outcome: 'allow' })).toBe(false)
  opened.get('a')!.resolve({})
  await setImmediate()
  expect(started).toEqual(['a', 'other', 'b', 'c'])
  expect(await b.turn({ turn_id: 't', text: '', files: [] })).toMatchObject({ final_text: 'b' })
  start('d')
  await setImmediate()
  expect(started.at(-1)).toBe('d')
})

test('after a first one that fails, the next one starts alone; one that was ended does not start', async () => {
  const { start, started, opened } = prepare()
  const droids = ['a', 'b', 'c', 'd'].map((name) => start(name))
  for (const { ready } of droids) ready.catch(() => undefined)
  await droids[1]!.end(0)
  opened.get('a')!.reject(new Error('it failed'))
  await setImmediate()
  expect(started).toEqual(['a', 'c'])
  await expect(droids[1]!.ready).rejects.toMatchObject({ kind: 'conflict' })
  opened.get('c')!.resolve({})
  await setImmediate()
  expect(started).toEqual(['a', 'c', 'd'])
})
