// Directories in a place where a container may have put anything: made, given to their owner, moved aside. The path of
// `parent` must be one that no container can change; what is in it may be hostile.

import { randomBytes } from 'node:crypto'
import type { Stats } from 'node:fs'
import { chown, type FileHandle, mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Fault } from '../fault.ts'
import { isRoot } from '../lib/is-root.ts'
import {
  below,
  codeOf,
  moveEntry,
  openDirectory,
  openEntry,
  openLocked,
  self,
  statOf,
  unless,
  unlock,
} from './handles.ts'

export type Owner = { uid: number; gid: number }
/** What stands where a directory should be. */
export type Foreign = 'symlink' | 'file' | 'fifo' | 'socket' | 'device' | 'mount'
export type Ensured = { status: 'made' | 'there' } | { status: 'foreign'; found: Foreign }

const attempts = 10

function foreign(stats: Stats): Foreign | undefined {
  if (stats.isDirectory()) return undefined
  if (stats.isSymbolicLink()) return 'symlink'
  if (stats.isFile()) return 'file'
  if (stats.isFIFO()) return 'fifo'
  return stats.isSocket() ? 'socket' : 'device'
}

/** One look: undefined if the entry was gone again before it could be opened. */
async function attempt(parent: FileHandle, name: string, owner: Owner): Promise<Ensured | undefined> {
  const path = below(parent, name)
  const made = mkdir(path, { mode: 0o750 }).then(() => 'made' as const)
  const status = await unless(made, ['EEXIST'], 'there' as const)
  const entry = await unless(openEntry(path), ['ENOENT'], undefined)
  if (!entry) return undefined
  try {
    const stats = await entry.stat()
    const found = foreign(stats) ?? (stats.dev === (await parent.stat()).dev ? undefined : 'mount')
    if (found) return { status: 'foreign', found }
    // By the handle that was looked at. A real directory of this file system, in this place, is either ours or was
    // made by the container; it is never one of the host.
    if (isRoot() && (stats.uid !== owner.uid || stats.gid !== owner.gid))
      await chown(self(entry), owner.uid, owner.gid)
    return { status }
  } finally {
    await entry.close()
  }
}

/** Makes sure that `name` is a real directory of the owner. Whatever else stands there is left alone and told. */
export async function ensureDirectory(parent: string, name: string, owner: Owner): Promise<Ensured> {
  const handle = await openLocked(parent, 0o700)
  try {
    await unlock(handle)
    for (let round = 0; round < attempts; round++) {
      const ensured = await attempt(handle, name, owner)
      if (ensured) return ensured
    }
    throw new Fault('conflict', `directory "${name}" is removed as often as it is made`, {
      hint: 'a process in the container does that: stop the container',
    })
  } finally {
    await handle.close()
  }
}

/**
 * Moves an entry as it is, a link unfollowed, to the first of `places` that is on its file system: paths that no
 * container sees. A name that is taken gets a suffix. Answers where it is now, or undefined if there was nothing.
 */
export async function moveAside(parent: string, name: string, places: string[]): Promise<string | undefined> {
  const handle = await openDirectory(parent)
  try {
    for (const place of places) {
      await mkdir(dirname(place), { recursive: true, mode: 0o700 })
      const to = (await statOf(place)) ? `${place}-${randomBytes(4).toString('hex')}` : place
      try {
        await moveEntry(below(handle, name), to)
        return to
      } catch (error) {
        if (codeOf(error) === 'ENOENT') return undefined
        // Another file system, or one that is mounted in this very place.
        if (codeOf(error) !== 'EXDEV' && codeOf(error) !== 'EBUSY') throw error
      }
    }
    throw new Fault('unavailable', `cannot move "${name}" aside: it is on a file system of its own`, {
      hint: `look at ${parent}`,
    })
  } finally {
    await handle.close()
  }
}
