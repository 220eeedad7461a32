// Deletes everything in a directory, of any depth, without recursion and with two handles: a subdirectory that is not
// empty is moved up into the directory itself, under a name of ours, and takes its turn there. What is left to do is on
// disk and nowhere else, so the work can stop at any point and be taken up again. No link is followed, and what a
// process exchanges meanwhile is deleted as what it then is.
import { randomBytes } from 'node:crypto'
import { type FileHandle, rmdir, unlink } from 'node:fs/promises'
import { Fault } from '../fault.ts'
import { below, codeOf, entriesOf, moveEntry, type Name, openLocked, unless, unlock } from './handles.ts'

const owned = 0o700
/** What a container, or a mount of the host, can put in the way of one entry. Others are deleted all the same. */
const inTheWay = [
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

/** Removes an entry that is no directory, or an empty one. */
async function removeEntry(directory: FileHandle, name: Name, is_directory: boolean): Promise<Outcome> {
  const path = below(directory, name)
  // What it was when it was listed only says what to try first.
  for (const remove of is_directory ? [rmdir, unlink, rmdir] : [unlink, rmdir, unlink]) {
    try {
      await remove(path)
      return 'gone'
    } catch (error) {
      const code = codeOf(error)
      if (code === 'ENOENT') return 'gone'
      if (code === 'ENOTEMPTY' || code === 'EEXIST') return 'full'
      if (code !== 'EISDIR' && code !== 'ENOTDIR') {
        if (inTheWay.includes(code ?? '')) return 'stuck'
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

  /** Everything in a directory of the root: deleted, or moved into the root. True if anything was. */
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
      if (await unless(kept, inTheWay, false)) moved = true
    }
    return moved
  }

  async function remove(name: Buffer, is_directory: boolean): Promise<boolean> {
    const first = await removeEntry(root, name, is_directory)
    if (first !== 'full') return first === 'gone'
    const directory = await unless(openLocked(below(root, name), owned), inTheWay, undefined)
    if (!directory) return false
    let moved = false
    try {
      // Another file system that is mounted here is not ours to delete.
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
      throw new Fault('conflict', 'some entries of the directory cannot be deleted', {
        hint: 'look for mounts and for immutable files in it',
      })
  }
}
