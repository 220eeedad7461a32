import { expect, test, vi } from 'vitest'
import { createOutputProgress } from './attached.ts'

test('passes text on, not too often, not too long and not without end, whatever a container sends', () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    const told: string[] = []
    const update = createOutputProgress((message) => told.push(message))
    update({ message: 'first' })
    update({ message: 'too soon' })
    vi.advanceTimersByTime(250)
    for (const message of [undefined, '', 7, { toString: () => 'x' }, ['x']]) update({ message })
    update({ message: `${'x'.repeat(16 * 1024 - 1)}😀 and more` })
    expect(told).toEqual(['first', `${'x'.repeat(16 * 1024 - 1)}\ufffd`])
    for (let round = 0; round < 1000; round++) {
      vi.advanceTimersByTime(250)
      update({ message: 'y'.repeat(100_000) })
    }
    const all = told.join('')
    expect(all.length).toBeGreaterThan(4 * 1024 * 1024)
    expect(all.length).toBeLessThan(4.1 * 1024 * 1024)
    expect(told.at(-1)).toContain('further output is not shown')
  } finally {
    vi.useRealTimers()
  }
})
