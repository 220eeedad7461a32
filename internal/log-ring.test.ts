import { expect, test } from 'vitest'
import { createLog } from './log.ts'
import { captureConsole, createLogRing } from './log-ring.ts'

const filled = (count: number, size = 100) => {
  const ring = createLogRing(size)
  const log = createLog({ level: 'debug', format: 'text', write: () => undefined, keep: ring.add })
  for (let number = 0; number < count; number++) log.info(`line ${number}`, { number })
  return { ring, log }
}
const messages = (ring: ReturnType<typeof createLogRing>, filter = {}) =>
  ring.read({ limit: 50, ...filter }).entries.map(({ message }) => message)

test('keeps the newest lines and counts those that are gone', () => {
  const { ring } = filled(250)
  const { entries, dropped } = ring.read({ limit: 500 })
  expect(entries).toHaveLength(100)
  expect(entries[0]).toMatchObject({ message: 'line 150', level: 'info', number: 150 })
  expect(entries.at(-1)).toMatchObject({ message: 'line 249' })
  expect(dropped).toBe(150)
})

test('filters by level, text, time, session and request', () => {
  const { ring, log } = filled(3)
  log.warn('disk full', { session_id: 'gogol_a', request_id: 'req_1' })
  log.error('Disk gone', { session_id: 'gogol_b' })
  expect(messages(ring, { level: 'warn' })).toEqual(['disk full', 'Disk gone'])
  expect(messages(ring, { grep: 'disk' })).toEqual(['disk full', 'Disk gone'])
  expect(messages(ring, { grep: 'line .' })).toEqual([])
  expect(messages(ring, { session_id: 'gogol_a' })).toEqual(['disk full'])
  expect(messages(ring, { request_id: 'req_1' })).toEqual(['disk full'])
  expect(messages(ring, { limit: 2 })).toEqual(['disk full', 'Disk gone'])
  expect(messages(ring, { since: new Date(Date.now() + 1000).toISOString() })).toEqual([])
})

test('masks tokens, and cuts long lines without losing their beginning', () => {
  const { ring, log } = filled(0)
  log.info('made', { token: `oub_${'a'.repeat(64)}` })
  log.error('long', { text: 'x'.repeat(100_000) })
  const { entries } = ring.read({ limit: 10 })
  expect(JSON.stringify(entries[0])).toContain('«redacted»')
  expect(entries[1]).toMatchObject({ level: 'error', truncated: true })
  expect(entries[1]!.message).toMatch(/^long/)
  expect(JSON.stringify(entries[1]).length).toBeLessThan(10_000)
})

test('what a library prints is in the log, and the console is restored', () => {
  const { ring, log } = filled(0)
  const before = console.log
  const restore = captureConsole(log)
  console.log('from a library', { a: 1 })
  console.error('bad')
  restore()
  expect(console.log).toBe(before)
  expect(ring.read({ limit: 5 }).entries).toMatchObject([
    { level: 'info', message: 'from a library { a: 1 }', source: 'console' },
    { level: 'error', message: 'bad' },
  ])
})
