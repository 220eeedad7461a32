import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { appendHistory, readHistory } from './input-history.ts'

test('messages are kept, newest first, in a file of their owner, which stays short', () => {
  const home = mkdtempSync(join(tmpdir(), 'oub-history-'))
  try {
    expect(readHistory(home)).toEqual([])
    appendHistory(home, 'one')
    appendHistory(home, 'two\nlines ')
    appendHistory(home, '  ')
    expect(readHistory(home)).toEqual(['two lines', 'one'])
    const file = join(home, 'chat-history')
    expect(statSync(file).mode & 0o777).toBe(0o600)
    writeFileSync(file, Array.from({ length: 2000 }, (_, at) => `${at}\n`).join(''))
    expect(readHistory(home)).toHaveLength(500)
    expect(readFileSync(file, 'utf8').split('\n')).toHaveLength(501)
    expect(() => appendHistory(join(home, 'missing'), 'x')).not.toThrow()
  } finally {
    rmSync(home, { recursive: true })
  }
})
