import { spawnSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { tar } from './tar.ts'

describe('tar', () => {
  it('is read by the system tar, with sizes, modes and contents', () => {
    const archive = tar([
      { path: 'Dockerfile', data: Buffer.from('FROM scratch\n'), executable: false },
      { path: 'scripts/run', data: Buffer.alloc(513, 'x'), executable: true },
    ])
    const listing = spawnSync('tar', ['-tvf', '-'], { input: archive, encoding: 'utf8' })
    expect(listing.stderr).toBe('')
    expect(listing.stdout).toMatch(/^-rw-r--r-- .* 13 .*Dockerfile\n-rwxr-xr-x .* 513 .*scripts\/run\n$/)
    const content = spawnSync('tar', ['-xOf', '-', 'scripts/run'], { input: archive, encoding: 'utf8' })
    expect(content.stdout).toBe('x'.repeat(513))
  })
})
