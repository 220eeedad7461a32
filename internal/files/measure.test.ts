import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { measureTree } from './measure.ts'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'oub-measure-'))
})
afterEach(() => {
  execFileSync('sh', ['-c', 'chmod -R u+rwx "$1" 2>/dev/null; rm -rf "$1"', 'sh', root])
})

const sh = (script: string) => execFileSync('bash', ['-c', script], { cwd: root })

describe('a measure', { timeout: 60_000 }, () => {
  it('counts blocks and entries, and a file with two links once', async () => {
    sh('head -c 100000 /dev/urandom > a; ln a b; mkdir d; head -c 5000 /dev/urandom > d/c; ln -s /etc d/link')
    const blocks = (name: string) => statSync(join(root, name)).blocks * 512
    const { bytes, entries, complete } = await measureTree(root)
    expect({ entries, complete }).toEqual({ entries: 5, complete: true })
    const expected = blocks('a') + blocks('d') + blocks('d/c') + 5 * 1024
    expect(bytes).toBe(expected)
  })

  it('of nothing is nothing', async () => {
    expect(await measureTree(join(root, 'missing'))).toEqual({ bytes: 0, entries: 0, complete: true })
  })

  it('does not follow a link, not even at its root', async () => {
    sh('mkdir target; touch target/x; ln -s target link')
    await expect(measureTree(join(root, 'link'))).rejects.toThrow()
  })

  it('reaches the end of a deep tree in which every level has more to visit', async () => {
    sh('for i in $(seq 100); do mkdir a b; touch a/f b/f; cd b; done')
    const { entries, complete } = await measureTree(root)
    expect({ entries, complete }).toEqual({ entries: 400, complete: true })
  })

  it('of names that are no UTF-8 and of wide directories is complete', async () => {
    sh("mkdir $'\\xff\\xfe'; touch $'\\xff\\xfe'/$'\\x80'; mkdir w; cd w; seq 500 | xargs mkdir")
    const { entries, complete } = await measureTree(root)
    expect({ entries, complete }).toEqual({ entries: 503, complete: true })
  })

  it('of a tree that is too deep says that it is not complete, and ends', async () => {
    execFileSync('perl', ['-e', 'for (1..2100) { mkdir "a"; chdir "a" }'], { cwd: root })
    const { entries, complete } = await measureTree(root)
    expect(complete).toBe(false)
    expect(entries).toBe(2048)
    // A program that walks by names would not get there.
    execFileSync('sh', ['-c', 'rm -rf a'], { cwd: root })
  })

  it('stops at a number of bytes, and at a signal', async () => {
    sh('seq 200 | xargs touch')
    const some = await measureTree(root, { stop_at_bytes: 50 * 1024 })
    expect(some).toEqual({ bytes: 50 * 1024, entries: 50, complete: false })
    expect(await measureTree(root, { signal: AbortSignal.abort() })).toMatchObject({ complete: false })
  })

  it('does not hold more handles than a few', async () => {
    execFileSync('perl', ['-e', 'for (1..120) { mkdir "a"; mkdir "b"; chdir "a" }'], { cwd: root })
    const before = readdirSync('/proc/self/fd').length
    let most = 0
    const timer = setInterval(() => {
      most = Math.max(most, readdirSync('/proc/self/fd').length)
    }, 1)
    await measureTree(root)
    clearInterval(timer)
    expect(most).toBeLessThan(before + 60)
    expect(readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(before + 1)
  })
})
