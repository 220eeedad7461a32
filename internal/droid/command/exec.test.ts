import { expect, test, vi } from 'vitest'
import { createLiveOutput } from './exec.ts'

test('tells nothing of a quick command, and of others in pieces that hold whole characters', () => {
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] })
  try {
    const told: string[] = []
    const quick = createLiveOutput((text) => told.push(text))
    quick.push('stdout', Buffer.from('done\n'))
    vi.advanceTimersByTime(900)
    quick.stop()
    vi.advanceTimersByTime(10_000)
    expect(told).toEqual([])

    const long = createLiveOutput((text) => told.push(text))
    const euro = Buffer.from('€')
    long.push('stdout', Buffer.from('out '))
    long.push('stdout', euro.subarray(0, 1))
    long.push('stderr', Buffer.from('err '))
    vi.advanceTimersByTime(1000)
    long.push('stdout', euro.subarray(1))
    vi.advanceTimersByTime(500)
    expect(told).toEqual(['out err ', '€'])
    long.push('stdout', Buffer.alloc(10_000, 'x'))
    long.push('stdout', Buffer.alloc(10_000, 'x'))
    vi.advanceTimersByTime(500)
    expect(told.at(-1)).toMatch(/^x{8192}\n\[11808 characters left out\]\n$/)
    long.stop()
  } finally {
    vi.useRealTimers()
  }
})
