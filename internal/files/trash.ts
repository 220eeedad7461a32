// Deletes directory trees. A tree is first moved to a directory that no container sees, which is fast for any size, and deleted
// there in the background: one slice of each tree after the other, so that a large one does not delay the others. The directory
// is the queue: what remains after a crash is deleted by the next sweep.
import { randomBytes } from 'node:crypto'
import { type FileHandle, mkdir, rmdir, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault, messageOf } from '../fault.ts'
import type { Log } from '../log.ts'
import { emptyDirectory } from './empty.ts'
import { below, codeOf, entriesOf, moveEntry, openDirectory, openLocked, statOf, unless } from './handles.ts'

const slice = 5_000
/** Slices of one tree in one sweep: a process whose working directory is in the tree may keep filling it. */
const maxSlices = 400
/** Slices of a tree that a container still sees and may keep filling. */
const maxInPlace = 4_000

export type Trash = {
  /** No container may be able to change the path `parent`. Settles when no container sees the entry any more. */
  discard(parent: string, name: string): Promise<void>
  /** Deletes what is in the trash; settles when nothing more can be deleted. */
  sweep(): Promise<void>
  close(): Promise<void>
}

export function createTrash({ directory, log }: { directory: string; log: Log }): Trash {
  const ended = new AbortController()
  const { signal } = ended
  /** Directories of the trash into which a tree is being moved: still empty, but must not be removed. */
  const filling = new Set<string>()
  let working: Promise<void> | undefined
  let again = false

  /** For a tree on another file system than the trash: the same deletion, but visible to the container. */
  async function discardInPlace(parent: FileHandle, name: string): Promise<void> {
    const path = below(parent, name)
    const stats = await statOf(path)
    if (!stats) return
    if (!stats.isDirectory()) return await unlink(path)
    const tree = await openLocked(path, 0o700)
    try {
      for (let left = maxInPlace; (await emptyDirectory(tree, { steps: slice, signal })) === 'more'; left--) {
        signal.throwIfAborted()
        if (left === 0)
          throw new Fault('conflict', `"${name}" grows while it is deleted`, {
            hint: 'stop the container first',
          })
      }
    } finally {
      await tree.close()
    }
    const rest = rmdir(path).then(() => true)
    if (await unless(rest, ['ENOTEMPTY', 'EEXIST', 'ENOTDIR'], false)) return
    throw new Fault('conflict', `"${name}" changes while it is deleted`, {
      hint: 'stop the container first',
    })
  }

  async function discard(from: string, name: string): Promise<void> {
    const parent = await unless(openDirectory(from), ['ENOENT'], undefined)
    if (!parent) return
    const key = randomBytes(12).toString('hex')
    const bin = join(directory, key)
    filling.add(key)
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 })
      await mkdir(bin, { mode: 0o700 })
      await moveEntry(below(parent, name), join(bin, 'tree'))
    } catch (error) {
      // It is empty or does not exist; otherwise the next sweep removes it.
      await rmdir(bin).catch(() => undefined)
      if (codeOf(error) === 'ENOENT') return
      if (codeOf(error) !== 'EXDEV') throw error
      return await discardInPlace(parent, name)
    } finally {
      filling.delete(key)
      await parent.close()
    }
    void sweep()
  }

  /** True when the tree is deleted. */
  async function work(root: FileHandle, name: Buffer): Promise<boolean> {
    // A directory of a discard without a tree may still be listed after its removal.
    const bin = await unless(openLocked(below(root, name), 0o700), ['ENOENT'], undefined)
    if (!bin) return true
    try {
      if ((await emptyDirectory(bin, { steps: slice, signal })) === 'more') return false
    } finally {
      await bin.close()
    }
    await rmdir(below(root, name))
    return true
  }

  /** `left` has the remaining slices of each tree in this sweep. True if there is more to delete. */
  async function round(root: FileHandle, left: Map<string, number>): Promise<boolean> {
    let more = false
    for await (const { name } of entriesOf(root)) {
      if (signal.aborted) return false
      const key = name.toString('latin1')
      const slices = left.get(key) ?? maxSlices
      if (slices === 0 || filling.has(key)) continue
      left.set(key, slices - 1)
      try {
        if (!(await work(root, name))) more = true
      } catch (error) {
        left.set(key, 0)
        log.warn('failed to delete a tree from the trash, retrying with the next sweep', {
          path: join(directory, key),
          error: messageOf(error),
        })
      }
    }
    return more
  }

  async function workAll(): Promise<void> {
    const root = await unless(openDirectory(directory), ['ENOENT'], undefined)
    if (!root) return
    try {
      const left = new Map<string, number>()
      do {
        again = false
        while (await round(root, left));
      } while (again && !signal.aborted)
    } finally {
      await root.close()
    }
  }

  function sweep(): Promise<void> {
    again = true
    working ??= workAll()
      .catch((error: unknown) =>
        log.warn('failed to empty the trash', { path: directory, error: messageOf(error) }),
      )
      .finally(() => {
        working = undefined
      })
    return working
  }

  return {
    discard,
    sweep,
    async close() {
      ended.abort()
      await working
    },
  }
}
