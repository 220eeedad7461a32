import { describe, expect, it } from 'vitest'
import { mountFlags, stagePath } from './stage.ts'

const mountinfo = `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 254:0 /data /mnt/with\\040space rw,relatime - ext4 /dev/vda rw
41 27 254:0 /data /mnt/twice rw,relatime - ext4 /dev/vda rw
42 41 254:0 /data /mnt/twice ro,nosuid,nodev,relatime - ext4 /dev/vda rw
`

describe('the flags of a mount', () => {
  it('are those of the uppermost mount at a path', () => {
    expect(mountFlags(mountinfo, '/mnt/twice')).toEqual(['ro', 'nosuid', 'nodev', 'relatime'])
    expect(mountFlags(mountinfo, '/mnt/with space')).toEqual(['rw', 'relatime'])
  })

  it('are not those of the file system, nor of a mount above', () => {
    expect(mountFlags(mountinfo, '/mnt')).toBeUndefined()
    expect(mountFlags(mountinfo, '/mnt/twice/x')).toBeUndefined()
  })
})

describe('the place of staged mounts', () => {
  it('differs for every home', () => {
    expect(stagePath('/a')).toMatch(/^\/run\/oubliette-[0-9a-f]{12}$/)
    expect(stagePath('/a')).not.toBe(stagePath('/b'))
  })
})
