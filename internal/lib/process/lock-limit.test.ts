import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { limitsCarry, lockLimit, lockLimitLines, withLockLimit } from './lock-limit.ts'

const session = 'OUBLIETTE_SESSION_ID=gogol_a'
const turn = 'OUBLIETTE_TURN_ID=t1'
const show = ['env', '-i', 'setsid', 'cat', '/proc/self/limits']
const run = ([program = '', ...args]: string[], env: Record<string, string> = {}) =>
  execFileSync(program, args, { env: { ...process.env, ...env }, encoding: 'utf8' })

test('is carried by what cleans its environment and leaves its group, and by nothing else', () => {
  const limits = run(withLockLimit(lockLimit(session, turn), show))
  expect(limitsCarry(limits, session)).toBe(true)
  expect(limitsCarry(limits, turn)).toBe(true)
  expect(limitsCarry(limits, 'OUBLIETTE_SESSION_ID=gogol_b')).toBe(false)
  expect(limitsCarry(limits, 'OUBLIETTE_TURN_ID=t2')).toBe(false)
  expect(limitsCarry(run(show), session)).toBe(false)
})

test('reaches a script by BASH_ENV, leaves what was there in force, and no trace', () => {
  const folder = mkdtempSync(join(tmpdir(), 'oub-limit-'))
  try {
    const script = join(folder, 'script')
    const before = join(folder, "it's before")
    const lines = join(folder, 'lines')
    writeFileSync(before, 'greeting=hello\n')
    writeFileSync(script, 'echo "$greeting $LINENO ${BASH_ENV-none}"; cat /proc/self/limits')
    writeFileSync(lines, lockLimitLines(lockLimit(session), undefined))
    const plain = run(['bash', script], { BASH_ENV: lines })
    expect(plain.split('\n')[0]).toBe(' 1 none')
    expect(limitsCarry(plain, session)).toBe(true)
    writeFileSync(lines, lockLimitLines(lockLimit(session), before))
    expect(run(['bash', script], { BASH_ENV: lines }).split('\n')[0]).toBe(`hello 1 ${before}`)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
