import { appendFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Fault } from '../fault.ts'
import { openCommandLog } from './command-log.ts'

let root: string
let file: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'done-'))
  file = join(root, 'commands.jsonl')
})
afterEach(() => rmSync(root, { recursive: true }))

test('a command runs once, for those who ask at the same time, later, and after a restart', async () => {
  let runs = 0
  const act = async () => ({ n: ++runs })
  const done = openCommandLog(file)
  expect(await Promise.all([done.run('a', act), done.run('a', act)])).toEqual([{ n: 1 }, { n: 1 }])
  expect(await openCommandLog(file).run('a', act)).toEqual({ n: 1 })
  expect(await openCommandLog(file).run('b', act)).toEqual({ n: 2 })
})

test('a refusal is remembered as well', async () => {
  const refuse = async () => {
    throw new Fault('not_found', 'no such thing')
  }
  await expect(openCommandLog(file).run('a', refuse)).rejects.toMatchObject({ kind: 'not_found' })
  const again = openCommandLog(file).run('a', async () => 'now it would work')
  await expect(again).rejects.toMatchObject({ kind: 'not_found', message: 'no such thing' })
})

test('one that was cut off is not run again, and a torn line is no harm', async () => {
  void openCommandLog(file).run('a', () => new Promise(() => {}))
  appendFileSync(file, '{"id":"b","beg')
  const done = openCommandLog(file)
  await expect(done.run('a', async () => 'again')).rejects.toMatchObject({ kind: 'conflict' })
  expect(await done.run('b', async () => 'first')).toBe('first')
  expect(await openCommandLog(file).run('b', async () => 'second')).toBe('first')
})
