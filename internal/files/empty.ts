// Deletes everything in a directory, of any depth, without recursion and with two handles: a subdirectory that is not empty is
// moved into the directory itself under a generated name, and processed there. The remaining work is on disk only, so it can
// stop at any point and be resumed. No link is followed; an entry that is replaced during the work is deleted as what it is then.
import { randomBytes } from 'node:crypto'
import { type FileHandle, rmdir, unlink } from 'node:fs/promises'
import { Fault } from '../fault.ts'
import { below, codeOf, entriesOf, moveEntry, type Name, openLocked, unless, unlock } from './handles.ts'

const owned = 0o700
/** Errors that a container or a mount of the host can cause for one entry. The other entries are still deleted. */
const obstacles = [
  'EBUSY',
  'EXDEV',
  'EMLINK',
  'EACCES',
  'EPERM',
  'EROFS',
  'ENOTDIR',
  'ELOOP',
  'ENOENT',
  'EEXIST',
]

type Outcome = 'gone' | 'full' | 'stuck'

/** Removes a file or an empty directory. */
async function removeEntry(directory: FileHandle, name: Name, is_directory: boolean): Promise<Outcome> {
  const path = below(directory, name)
  // The listed type only determines what is tried first.
  for (const remove of is_directory ? [rmdir, unlink, rmdir] : [unlink, rmdir, unlink]) {
    try {
      await remove(path)
      return 'gone'
    } catch (error) {
      const code = codeOf(error)
      if (code === 'ENOENT') return 'gone'
      if (code === 'ENOTEMPTY' || code === 'EEXIST') return 'full'
      if (code !== 'EISDIR' && code !== 'ENOTDIR') {
        if (obstacles.includes(code ?? '')) return 'stuck'
        throw error
      }
    }
  }
  return 'stuck'
}

/** 'empty' when nothing is left, 'more' when `steps` entries were handled or the signal came before that. */
export async function emptyDirectory(
  root: FileHandle,
  options: { steps: number; signal?: AbortSignal },
): Promise<'empty' | 'more'> {
  const { dev } = await root.stat()
  let left = options.steps
  const spent = () => left <= 0 || options.signal?.aborted === true

  /** Deletes the content of a directory of the root, or moves it into the root. True if there was progress. */
  async function drain(directory: FileHandle): Promise<boolean> {
    await unlock(directory)
    let moved = false
    for await (const entry of entriesOf(directory)) {
      if (spent()) break
      left -= 1
      const outcome = await removeEntry(directory, entry.name, entry.isDirectory())
      if (outcome === 'gone') moved = true
      if (outcome !== 'full') continue
      const to = below(root, `oubliette-${randomBytes(12).toString('hex')}`)
      const kept = moveEntry(below(directory, entry.name), to).then(() => true)
      if (await unless(kept, obstacles, false)) moved = true
    }
    return moved
  }

  async function remove(name: Buffer, is_directory: boolean): Promise<boolean> {
    const first = await removeEntry(root, name, is_directory)
    if (first !== 'full') return first === 'gone'
    const directory = await unless(openLocked(below(root, name), owned), obstacles, undefined)
    if (!directory) return false
    let moved = false
    try {
      // A mounted file system must not be deleted.
      if ((await directory.stat()).dev !== dev) return false
      moved = await drain(directory)
    } finally {
      await directory.close()
    }
    return (await removeEntry(root, name, true)) === 'gone' || moved
  }

  await unlock(root)
  for (;;) {
    let seen = false
    let moved = false
    for await (const entry of entriesOf(root)) {
      if (spent()) return 'more'
      left -= 1
      seen = true
      if (await remove(entry.name, entry.isDirectory())) moved = true
    }
    if (!seen) return 'empty'
    if (!moved && !spent())
      throw new Fault('conflict', 'failed to delete some entries of the directory', {
        hint: 'check it for mounts and immutable files',
      })
  }
}
