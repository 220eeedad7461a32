import fc from 'fast-check'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createCoalescer } from './coalesce.ts'
import type { DroidEvent } from './droid.ts'

beforeEach(
  () =>
    void vi.useFakeTimers({
      toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'clearImmediate', 'performance'],
    }),
)
afterEach(() => void vi.useRealTimers())

const gather = (options?: { max_chars: number }) => {
  const events: DroidEvent[] = []
  return { events, coalescer: createCoalescer((event) => events.push(event), options) }
}
const head = (stream: string) => ({ type: 'delta', stream })

test('the first text goes out at once, the next ones together', () => {
  const { events, coalescer } = gather()
  vi.advanceTimersByTime(1000)
  coalescer.push('out', head('out'), 'first\n')
  vi.advanceTimersByTime(1)
  expect(events).toHaveLength(1)
  for (let i = 0; i < 100; i++) coalescer.push('out', head('out'), `${i}\n`)
  expect(events).toHaveLength(1)
  vi.advanceTimersByTime(50)
  expect(events).toHaveLength(2)
  expect(events[1]).toMatchObject({
    type: 'delta',
    stream: 'out',
    text: expect.stringMatching(/^0\n1\n[\s\S]*99\n$/),
  })
})

test('texts of two kinds keep their order and are not mixed', () => {
  const { events, coalescer } = gather()
  for (const [kind, text] of [
    ['out', 'a'],
    ['out', 'b'],
    ['err', 'c'],
    ['out', 'd'],
  ] as const)
    coalescer.push(kind, head(kind), text)
  coalescer.flush()
  expect(events.map((it) => [it.stream, it.text])).toEqual([
    ['out', 'ab'],
    ['err', 'c'],
    ['out', 'd'],
  ])
})

test('events are bounded, cut after lines where there are any, and never through a character', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.tuple(fc.constantFrom('out', 'err'), fc.string({ unit: fc.constantFrom('a', '\n', '😀', 'é') })),
      ),
      (texts) => {
        const { events, coalescer } = gather({ max_chars: 8 })
        for (const [kind, text] of texts) coalescer.push(kind, head(kind), text)
        coalescer.flush()
        for (const kind of ['out', 'err'])
          expect(
            events
              .filter((it) => it.stream === kind)
              .map((it) => it.text)
              .join(''),
          ).toBe(
            texts
              .filter(([of]) => of === kind)
              .map(([, text]) => text)
              .join(''),
          )
        for (const { text } of events) {
          expect((text as string).length).toBeLessThanOrEqual(8)
          expect((text as string).isWellFormed()).toBe(true)
        }
      },
    ),
  )
})
