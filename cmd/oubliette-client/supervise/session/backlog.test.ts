import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Journal, openJournal } from '../../../../internal/supervisor/journal.ts'
import { createBacklog } from './backlog.ts'

let directory: string
let journal: Journal
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'backlog-'))
  journal = openJournal({ directory })
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const text = 'x'.repeat(1000)
const print = (lines: number) => {
  for (let i = 0; i < lines; i++) journal.append({ type: 'delta', text })
}
const types = () => (journal.read(0, 100_000_000)?.lines ?? []).map((line) => JSON.parse(line).type as string)

test('what an interrupted turn said beyond the bound is dropped and counted; what the state follows from is kept', () => {
  const backlog = createBacklog(journal, { sent_seq: 20 })
  journal.append({ type: 'status', status: 'running' })
  print(500)
  journal.append({ type: 'completion', turn_id: 'first' })
  print(500)
  backlog.interrupt()
  backlog.end()
  expect(backlog.accepts({ type: 'delta', text })).toBe(false)
  expect(backlog.accepts({ type: 'completion', turn_id: 'second' })).toBe(true)
  journal.flush()
  const left = types()
  expect(left.filter((type) => type !== 'delta')).toEqual(['status', 'completion'])
  expect(left.length).toBeLessThan(80)
  const kept = left.filter((type) => type === 'delta').length
  const told = backlog.takeDiscarded()
  expect(told).toMatchObject({ type: 'warning', dropped_events: 1000 - kept + 1 })
  expect(told?.dropped_bytes).toBeGreaterThan((1000 - kept) * 1000)
  expect(backlog.takeDiscarded()).toBeUndefined()
})

test('what may have been sent is kept, however much it is', () => {
  const backlog = createBacklog(journal, { sent_seq: 400 })
  print(500)
  backlog.interrupt()
  backlog.end()
  expect(types()).toHaveLength(401)
})

test.each([
  ['ended by itself', 1000, (_: ReturnType<typeof createBacklog>) => undefined],
  ['said little', 20, (backlog: ReturnType<typeof createBacklog>) => backlog.interrupt()],
])('a turn that %s loses nothing', (_name, lines, before) => {
  const backlog = createBacklog(journal, { sent_seq: -1 })
  print(lines)
  before(backlog)
  backlog.end()
  journal.flush()
  expect(types()).toHaveLength(lines)
  expect(backlog.takeDiscarded()).toBeUndefined()
})
