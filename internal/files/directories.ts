// Creates directories, sets their owner and moves them aside, in a location where a container may have put anything. No
// container may be able to change the path of `parent`; its content may be hostile.
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
/** What is found in place of a directory. */
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

/** One attempt: undefined if the entry was removed before it could be opened. */
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
    // Through the handle that was checked. A real directory of this file system at this path was created by the server or by
    // the container; it is never a directory of the host.
    if (isRoot() && (stats.uid !== owner.uid || stats.gid !== owner.gid))
      await chown(self(entry), owner.uid, owner.gid)
    return { status }
  } finally {
    await entry.close()
  }
}

/** Ensures that `name` is a real directory of the owner. Anything else at the path is left alone and reported. */
export async function ensureDirectory(parent: string, name: string, owner: Owner): Promise<Ensured> {
  const handle = await openLocked(parent, 0o700)
  try {
    await unlock(handle)
    for (let round = 0; round < attempts; round++) {
      const ensured = await attempt(handle, name, owner)
      if (ensured) return ensured
    }
    throw new Fault('conflict', `directory "${name}" is removed each time it is created`, {
      hint: 'a process in the container removes it: stop the container',
    })
  } finally {
    await handle.close()
  }
}

/**
 * Moves an entry, without following a link, to the first of `places` that is on its file system. No container may see these
 * paths. An existing name gets a suffix. Returns the new path, or undefined if there was no entry.
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
        // Another file system, or a mount point.
        if (codeOf(error) !== 'EXDEV' && codeOf(error) !== 'EBUSY') throw error
      }
    }
    throw new Fault('unavailable', `cannot move "${name}" aside: it is a mount point`, {
      hint: `unmount it in ${parent}`,
    })
  } finally {
    await handle.close()
  }
}
