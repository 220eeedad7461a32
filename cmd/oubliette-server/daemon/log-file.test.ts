import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { rotate } from './log-file.ts'

test('a log file that exceeds its size is rotated', () => {
  const folder = mkdtempSync(join(tmpdir(), 'oubliette-log-'))
  const file = join(folder, 'server.log')
  appendFileSync(file, 'a'.repeat(50))
  expect(rotate(file, 100)).toBe(false)
  appendFileSync(file, 'b'.repeat(60))
  expect(rotate(file, 100)).toBe(true)
  appendFileSync(file, 'c')
  expect(readFileSync(file, 'utf8')).toBe('c')
  expect(readFileSync(`${file}.1`, 'utf8')).toHaveLength(110)
  rmSync(folder, { recursive: true })
})
