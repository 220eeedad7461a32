// Measures the size of a directory tree: one operation at a time, in bounded memory, with a bounded number of handles, whatever
// the shape of the tree. Nothing is locked: entries that move during the walk may be counted twice or not at all.
import type { Stats } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { below, entriesOf, openDirectory, openLocked, statOf, unless } from './handles.ts'
import { createSmallest } from './smallest.ts'

/** Bytes added per entry, for its inode and name. */
const entryBytes = 1024
const openHandles = 32
/** Deeper trees are not walked completely, and the result reports that. */
const maxLevels = 2048
/** Names of directories that are still to be walked, over all levels. */
const maxPending = 50_000
/** Files with several links that are tracked; beyond this, each link counts as a file. */
const maxLinked = 100_000

export type Measure = {
  bytes: number
  entries: number
  /** False if it was stopped by the signal, by `stop_at_bytes` or by the depth of the tree: then `bytes` is a lower bound. */
  complete: boolean
}

type Level = {
  name: Buffer
  /** Undefined while the walk is far below this level. */
  handle: FileHandle | undefined
  ino: number
  dev: number
  waiting: string[]
  /** Directories after this name are still to be listed. */
  after: string | undefined
}

const gone = ['ENOENT', 'ENOTDIR', 'ELOOP']
const readable = 0o500

export async function measureTree(
  path: string,
  options: { signal?: AbortSignal; stop_at_bytes?: number } = {},
): Promise<Measure> {
  const total: Measure = { bytes: 0, entries: 0, complete: true }
  const linked = new Set<string>()
  const levels: Level[] = []
  let waiting = 0

  const stopped = () =>
    options.signal?.aborted === true ||
    (options.stop_at_bytes !== undefined && total.bytes >= options.stop_at_bytes)

  function count(stats: Stats): void {
    total.entries += 1
    total.bytes += entryBytes
    if (stats.nlink > 1 && !stats.isDirectory()) {
      const key = `${stats.dev}:${stats.ino}`
      if (linked.has(key)) return
      if (linked.size < maxLinked) linked.add(key)
    }
    total.bytes += stats.blocks * 512
  }

  /** Notes the directories in it that come after `level.after`; the first time, everything in it is counted. */
  async function scan(level: Level, first: boolean): Promise<void> {
    const room = Math.max(16, Math.floor((maxPending - waiting) / 2))
    const found = createSmallest(room)
    const { after } = level
    for await (const entry of entriesOf(level.handle!)) {
      if (stopped()) break
      const name = entry.name.toString('latin1')
      if (!first && (!entry.isDirectory() || name <= after!)) continue
      const stats = await statOf(below(level.handle!, entry.name))
      if (!stats) continue
      if (first) count(stats)
      // A mounted file system is not part of the tree.
      if (stats.isDirectory() && stats.dev === level.dev) found.add(name)
    }
    const { names, more } = found.take()
    level.waiting = names
    level.after = more ? names.at(-1) : undefined
    waiting += names.length
  }

  async function enter(handle: FileHandle, name: Buffer): Promise<void> {
    const { ino, dev } = await handle.stat()
    const level: Level = { name, handle, ino, dev, waiting: [], after: undefined }
    levels.push(level)
    const far = levels.length - openHandles
    // The root's handle stays open: every path starts there.
    if (far > 0) await shut(levels[far]!)
    await scan(level, true)
  }

  async function shut(level: Level): Promise<void> {
    const { handle } = level
    level.handle = undefined
    await handle?.close()
  }

  /** Reopens the last level by walking from the root; false if it is gone. */
  async function reopen(): Promise<boolean> {
    for (let index = 1; index < levels.length; index++) {
      const level = levels[index]!
      if (!level.handle) {
        const path = below(levels[index - 1]!.handle!, level.name)
        level.handle = await unless(openLocked(path, readable), gone, undefined)
        if (!level.handle) return false
        if ((await level.handle.stat()).ino !== level.ino) return false
      }
      const far = index - openHandles
      if (far > 0) await shut(levels[far]!)
    }
    return true
  }

  async function step(level: Level): Promise<void> {
    if (level.waiting.length === 0 && level.after === undefined) {
      levels.pop()
      return await shut(level)
    }
    if (!level.handle && !(await reopen())) {
      waiting -= level.waiting.length
      levels.pop()
      return await shut(level)
    }
    const next = level.waiting.pop()
    if (next === undefined) return await scan(level, false)
    waiting -= 1
    if (levels.length >= maxLevels) {
      total.complete = false
      return
    }
    const name = Buffer.from(next, 'latin1')
    const handle = await unless(openLocked(below(level.handle!, name), readable), gone, undefined)
    if (handle) await enter(handle, name)
  }

  try {
    const root = await unless(openDirectory(path), ['ENOENT'], undefined)
    if (!root) return total
    await enter(root, Buffer.alloc(0))
    while (levels.length > 0 && !stopped()) await step(levels.at(-1)!)
    if (stopped()) total.complete = false
    return total
  } finally {
    for (const level of levels) await shut(level)
  }
}
