import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createLiveLine } from './live-line.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function terminal(columns = 40) {
  let time = 0
  const written: string[] = []
  const out = { isTTY: true, columns, write: (text: string) => void written.push(text) }
  const live = createLiveLine(out, () => time)!
  const pass = (ms: number) => {
    time += ms
    vi.advanceTimersByTime(ms)
  }
  return { live, written, pass }
}

test('a call that takes longer than a second shows its last message and its time on one line', () => {
  const { live, written, pass } = terminal()
  live.report('starting container')
  expect(written).toEqual([])
  pass(1000)
  expect(written.at(-1)).toBe('\r\x1b[2K  starting container · 1 s')
  live.report('building image x: step 4 of 9 (37%)\n')
  live.report('')
  pass(1000)
  expect(written.at(-1)).toBe('\r\x1b[2K  building image x: step 4 of 9 … · 2 s')
  expect(written.at(-1)!.length - '\r\x1b[2K'.length).toBeLessThan(40)
  live.end()
  expect(written.at(-1)).toBe('\r\x1b[2K')
  pass(5000)
  expect(written.at(-1)).toBe('\r\x1b[2K')
})

test('a call without messages shows that it waits, and a short one shows nothing', () => {
  const waiting = terminal()
  waiting.pass(180_000)
  expect(waiting.written.at(-1)).toBe('\r\x1b[2K  waiting · 3 min')
  waiting.live.end()
  const short = terminal()
  short.pass(900)
  short.live.end()
  expect(short.written).toEqual([])
})

test('nothing is shown where no terminal is', () => {
  expect(createLiveLine({ write: () => undefined })).toBeUndefined()
})
