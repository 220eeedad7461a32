import { spawnSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { archiveContext } from './build.ts'

const run = (archive: Buffer, ...args: string[]) =>
  spawnSync('tar', [...args], { input: archive, encoding: 'utf8', env: { ...process.env, TZ: 'UTC' } })

describe('a build context', () => {
  it('is read by the system tar, with sizes, modes and contents', async () => {
    const archive = await archiveContext([
      { path: 'Dockerfile', data: Buffer.from('FROM scratch\n'), executable: false },
      { path: 'scripts/run', data: Buffer.alloc(513, 'x'), executable: true },
    ])
    const listing = run(archive, '-tvf', '-')
    expect(listing.stderr).toBe('')
    expect(listing.stdout).toMatch(/^-rw-r--r-- .* 13 .*Dockerfile\n-rwxr-xr-x .* 513 .*scripts\/run\n$/)
    expect(run(archive, '-xOf', '-', 'scripts/run').stdout).toBe('x'.repeat(513))
  })

  it('has owner root and time zero, so that equal files give equal bytes', async () => {
    const files = [
      { path: 'Dockerfile', data: Buffer.from('FROM scratch\n'), executable: false },
      { path: 'empty', data: Buffer.alloc(0), executable: false },
    ]
    const archive = await archiveContext(files)
    expect(await archiveContext(files)).toEqual(archive)
    expect(run(archive, '--numeric-owner', '-tvf', '-').stdout).toMatch(
      /^-rw-r--r-- 0\/0 +13 1970-01-01 00:00 Dockerfile\n-rw-r--r-- 0\/0 +0 1970-01-01 00:00 empty\n$/,
    )
  })

  it('keeps names that are long or not ASCII', async () => {
    const paths = [`${'directory/'.repeat(20)}file`, `${'n'.repeat(150)}.txt`, 'grüße/日本.txt']
    const archive = await archiveContext(
      paths.map((path) => ({ path, data: Buffer.from(path), executable: false })),
    )
    expect(run(archive, '--quoting-style=literal', '-tf', '-').stdout).toBe(`${paths.join('\n')}\n`)
    for (const path of paths) expect(run(archive, '-xOf', '-', path).stdout).toBe(path)
  })
})
