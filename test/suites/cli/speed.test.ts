// The time that a command for a running server takes, as a person waits for it: the whole script, with its shell.
import { spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'

const script = resolve(import.meta.dirname, '../../../oubliette')
const most = 3
const runs = 15

let booted: Booted
beforeAll(async () => {
  booted = await boot()
  await booted.project()
})
afterAll(() => booted?.stop())

function time(command: string, args: string[]): number {
  const started_ms = performance.now()
  const { status, stderr } = spawnSync(command, args, {
    env: {
      PATH: `${join(process.execPath, '..')}:${process.env.PATH}`,
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_TOKEN: booted.server.admin_token,
    },
  })
  expect([status, String(stderr)]).toEqual([0, ''])
  return performance.now() - started_ms
}

test(`project list takes at most ${most} times as long as the start of Node`, () => {
  const bare = () => time(process.execPath, ['-e', '0'])
  const list = () => time(script, ['project', 'list'])
  // The first run checks the dependencies and fills the cache of compiled modules.
  list()
  const measured = Array.from({ length: runs }, () => ({ bare: bare(), list: list() }))
  // Other work on the machine disturbs both alike, because they take turns.
  const median = (name: 'bare' | 'list') =>
    measured.map((times) => times[name]).sort((a, b) => a - b)[Math.floor(runs / 2)]!
  const ratio = median('list') / median('bare')
  console.log(`project list: ${median('list').toFixed(0)} ms, ${ratio.toFixed(2)} × node -e 0`)
  expect(ratio).toBeLessThanOrEqual(most)
})
