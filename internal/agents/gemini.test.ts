import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { keepHistory } from './gemini.ts'

test('the file of a conversation is moved out of the way of its own beginning, once', () => {
  const home = mkdtempSync(join(tmpdir(), 'oub-gemini-'))
  const chats = join(home, '.gemini/tmp/default/chats')
  mkdirSync(chats, { recursive: true })
  const id = '53a6b48a-4416-4aa1-a7d6-f7b199579818'
  const write = (minute: string, of: string, text: string) =>
    writeFileSync(join(chats, `session-2026-01-01T00-${minute}-${of.slice(0, 8)}.jsonl`), text)
  try {
    write('01', id, 'all of it')
    write('01', 'aaaaaaaa', 'another')
    keepHistory(home, id)
    write('02', id, 'a beginning')
    keepHistory(home, id)
    keepHistory(home, '../../../etc')
    keepHistory(join(home, 'nowhere'), id)
    const kept = 'session-1970-01-01T00-00-53a6b48a.jsonl'
    expect(readdirSync(chats).sort()).toEqual([
      kept,
      'session-2026-01-01T00-01-aaaaaaaa.jsonl',
      'session-2026-01-01T00-02-53a6b48a.jsonl',
    ])
    expect(readFileSync(join(chats, kept), 'utf8')).toBe('all of it')
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
})
