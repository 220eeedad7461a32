import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Journal, openJournal } from './journal.ts'

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'journal-'))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const fill = (journal: Journal, n: number, size = 10) => {
  for (let i = 0; i < n; i++) journal.append({ type: 'delta', text: 'x'.repeat(size) })
  journal.flush()
}
function seqs(journal: Journal, from: number, max_bytes = 500): number[] {
  const seen: number[] = []
  for (let at = from; ; ) {
    const batch = journal.read(at, max_bytes)
    if (!batch) return seen
    const events = JSON.parse(`[${batch.events}]`) as { seq: number }[]
    expect([events[0]!.seq, events.at(-1)!.seq]).toEqual([batch.first_seq, batch.last_seq])
    seen.push(...events.map((it) => it.seq))
    at = batch.last_seq + 1
  }
}
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)
const segments = () => readdirSync(directory).sort()

test('what was appended is read back from any number on, over segments and restarts', () => {
  const first = openJournal({ directory, segment_bytes: 1000 })
  for (let i = 0; i < 10; i++) fill(first, 10)
  expect(segments().length).toBeGreaterThan(3)
  expect(seqs(first, 0)).toEqual(range(0, 100))
  const again = openJournal({ directory, segment_bytes: 1000 })
  expect(again.next_seq).toBe(100)
  fill(again, 5)
  expect(seqs(again, 37)).toEqual(range(37, 105))
  // One event that is larger than a batch.
  fill(again, 1, 5000)
  expect(seqs(again, 104)).toEqual([104, 105])
})

test('a torn last line is cut off, and the numbers go on where the whole ones ended', () => {
  fill(openJournal({ directory }), 3)
  appendFileSync(join(directory, segments()[0]!), '{"seq":3,"type":"del')
  const again = openJournal({ directory })
  expect(again.next_seq).toBe(3)
  fill(again, 1)
  expect(seqs(again, 0)).toEqual([0, 1, 2, 3])
  expect(readFileSync(join(directory, segments()[0]!), 'utf8').split('\n')).toHaveLength(5)
})

test('what follows a damaged place is dropped, not sent', () => {
  const journal = openJournal({ directory, segment_bytes: 500 })
  for (let i = 0; i < 4; i++) fill(journal, 10)
  const second = join(directory, segments()[1]!)
  const lines = readFileSync(second, 'utf8').split('\n')
  lines[4] = 'damaged'
  writeFileSync(second, lines.join('\n'))
  const again = openJournal({ directory, segment_bytes: 500 })
  expect(again.next_seq).toBe(14)
  expect(seqs(again, 0)).toEqual(range(0, 14))
})

test('acknowledged segments go away, and the position stays when all of them are gone', () => {
  const journal = openJournal({ directory, segment_bytes: 1000 })
  for (let i = 0; i < 10; i++) fill(journal, 10)
  journal.ack(49)
  const left = segments().length
  expect(left).toBeLessThan(8)
  expect(seqs(journal, 50)).toEqual(range(50, 100))
  journal.ack(99)
  journal.settle()
  expect(journal.empty).toBe(true)
  expect(segments()).toEqual(['0000000000000100.jsonl'])
  const again = openJournal({ directory })
  expect([again.next_seq, again.acked_seq]).toEqual([100, 99])
})

test('it is full at its limit, and says when there is room again', () => {
  let rooms = 0
  const journal = openJournal({ directory, limit_bytes: 4000, on_room: () => rooms++ })
  while (!journal.full) fill(journal, 1, 100)
  expect(rooms).toBe(0)
  journal.ack(journal.next_seq - 1)
  expect([journal.full, rooms]).toEqual([false, 1])
})

test('a server that has more than the journal moves its numbers on', () => {
  const journal = openJournal({ directory })
  fill(journal, 2)
  journal.skipTo(2)
  expect(seqs(journal, 0)).toEqual([0, 1])
  journal.skipTo(10)
  expect([journal.next_seq, journal.acked_seq]).toEqual([10, 9])
  fill(journal, 1)
  expect(seqs(openJournal({ directory }), 10)).toEqual([10])
})

test('events whose file was removed are told as lost, without a gap', () => {
  const journal = openJournal({ directory, segment_bytes: 500 })
  for (let i = 0; i < 4; i++) fill(journal, 10)
  rmSync(directory, { recursive: true })
  fill(journal, 10)
  expect(seqs(journal, 0)).toEqual(range(0, 50))
  expect(journal.read(0, 100)?.events).toContain('was lost')
  expect(journal.read(49, 1000)?.events).toContain('xxx')
})

test('many events make one write, and one wake-up', async () => {
  let woken = 0
  const journal = openJournal({ directory, on_append: () => woken++ })
  for (let i = 0; i < 1000; i++) journal.append({ type: 'delta', text: String(i) })
  expect(journal.next_seq).toBe(1000)
  await expect.poll(() => woken).toBe(1)
  expect(seqs(journal, 0, 10_000)).toEqual(range(0, 1000))
})

test('the backlog is what is not acknowledged, to the byte', () => {
  const journal = openJournal({ directory, segment_bytes: 1000 })
  expect(journal.backlog_bytes).toBe(0)
  for (let i = 0; i < 10; i++) fill(journal, 10)
  const whole = journal.backlog_bytes
  journal.ack(49)
  expect(journal.backlog_bytes).toBeLessThan(whole * 0.55)
  expect(journal.backlog_bytes).toBeGreaterThan(whole * 0.45)
  journal.ack(99)
  expect(journal.backlog_bytes).toBe(0)
  journal.append({ type: 'delta', text: 'not written yet' })
  expect(journal.backlog_bytes).toBeGreaterThan(0)
})

test.each([
  ['within its last segment', 95],
  ['over several segments', 33],
  ['to its beginning', 0],
  ['to the end, which changes nothing', 100],
])('a journal is rewound %s, and the numbers go on from there, also after a restart', (_name, seq) => {
  const journal = openJournal({ directory, segment_bytes: 1000 })
  for (let i = 0; i < 10; i++) fill(journal, 10)
  journal.read(0, 500)
  journal.rewind(seq)
  expect(journal.next_seq).toBe(seq)
  expect(seqs(journal, 0)).toEqual(range(0, seq))
  journal.append({ type: 'status', status: 'completed' })
  journal.flush()
  expect(journal.read(seq, 1000)?.events).toContain('completed')
  const again = openJournal({ directory, segment_bytes: 1000 })
  expect(again.next_seq).toBe(seq + 1)
  expect(seqs(again, 0)).toEqual(range(0, seq + 1))
  journal.ack(seq)
  expect(journal.backlog_bytes).toBe(0)
})

test('a journal whose files were removed is rewound too, and what follows is not lost', () => {
  const journal = openJournal({ directory, segment_bytes: 500 })
  for (let i = 0; i < 4; i++) fill(journal, 10)
  rmSync(directory, { recursive: true })
  journal.rewind(15)
  fill(journal, 1)
  expect(seqs(journal, 0)).toEqual(range(0, 16))
  expect(journal.read(15, 1000)?.events).toContain('xxx')
})
