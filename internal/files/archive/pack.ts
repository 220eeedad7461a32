// Writes a tree as a tar archive, at the pace of its reader: one entry is open at a time, with one handle for each level above
// it. No link is followed. Pipes, sockets and devices are left out, as are names that are not UTF-8. The tree may change
// meanwhile: a file that shrinks is filled with zeros, one that grows is cut, so that the archive stays valid.
import { constants, type Stats } from 'node:fs'
import { type FileHandle, open, readlink } from 'node:fs/promises'
import { below, codeOf, entriesOf, openDirectory, statOf } from '../handles.ts'
import { endOfArchive, headerOf, paddingOf } from './header.ts'
import { createSkipped, type Skipped } from './notes.ts'

const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants
const chunkBytes = 256 * 1024
/** Deeper directories are left out. */
export const mostLevels = 128
const modeMask = 0o777

export type Packed = { files: number; bytes: number; skipped: Skipped }
type Source = { path: string | Buffer; stats: Stats }

/** What another process does to the tree leaves an entry out; other errors end the archive. */
const reasons: Record<string, string> = {
  ENOENT: 'was removed',
  ENOTDIR: 'was replaced',
  ELOOP: 'was replaced',
  ENXIO: 'was replaced',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
}

const kindOf = (stats: Stats): string =>
  stats.isFIFO() ? 'a named pipe' : stats.isSocket() ? 'a socket' : 'a device'

async function* contentOf(handle: FileHandle, size: number): AsyncGenerator<Buffer> {
  let left = size
  while (left > 0) {
    // A new buffer each time: the reader may still have the previous one.
    const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, left))
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, null)
    const chunk = bytesRead > 0 ? buffer.subarray(0, bytesRead) : buffer.fill(0)
    left -= chunk.length
    yield chunk
  }
}

/** The tree at `source`, under the name `top`. `packed` is complete when the last byte was read. */
export function packTree(
  source: Source,
  top: string,
  { one_file_system }: { one_file_system: boolean },
): { stream: AsyncGenerator<Buffer>; packed: () => Packed } {
  const skipped = createSkipped()
  const packed = { files: 0, bytes: 0 }

  async function* file(path: string | Buffer, name: string): AsyncGenerator<Buffer> {
    const handle = await open(path as string, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try {
      const stats = await handle.stat()
      if (!stats.isFile()) return skipped.add(name, 'was replaced')
      yield headerOf({ name, type: 'file', size: stats.size, ...common(stats) })
      for await (const chunk of contentOf(handle, stats.size)) {
        packed.bytes += chunk.length
        yield chunk
      }
      yield paddingOf(stats.size)
      packed.files += 1
    } finally {
      await handle.close()
    }
  }

  async function* directory(from: Source, name: string, level: number): AsyncGenerator<Buffer> {
    if (level > mostLevels) return skipped.add(name, `is deeper than ${mostLevels} levels`)
    const handle = await openDirectory(from.path)
    try {
      const stats = await handle.stat()
      yield headerOf({ name: `${name}/`, type: 'directory', size: 0, ...common(stats) })
      for await (const { name: raw } of entriesOf(handle)) {
        const text = raw.toString('utf8')
        const inner = `${name}/${text}`
        if (!Buffer.from(text).equals(raw)) {
          skipped.add(inner, 'the name is not UTF-8')
          continue
        }
        const path = below(handle, raw)
        const found = await statOf(path)
        if (!found) continue
        if (one_file_system && found.isDirectory() && found.dev !== stats.dev)
          skipped.add(inner, 'is a mount point')
        else yield* entry({ path, stats: found }, inner, level + 1)
      }
    } finally {
      await handle.close()
    }
  }

  async function* entry(from: Source, name: string, level: number): AsyncGenerator<Buffer> {
    try {
      if (from.stats.isDirectory()) yield* directory(from, name, level)
      else if (from.stats.isFile()) yield* file(from.path, name)
      else if (from.stats.isSymbolicLink()) {
        const linkname = await readlink(from.path as string)
        yield headerOf({ name, type: 'symlink', size: 0, linkname, ...common(from.stats) })
      } else skipped.add(name, `is ${kindOf(from.stats)}`)
    } catch (error) {
      const reason = reasons[codeOf(error) ?? '']
      if (!reason) throw error
      skipped.add(name, reason)
    }
  }

  async function* stream(): AsyncGenerator<Buffer> {
    yield* entry(source, top, 0)
    yield endOfArchive
  }
  return { stream: stream(), packed: () => ({ ...packed, skipped: skipped.result() }) }
}

const common = (stats: Stats) => ({ mode: stats.mode & modeMask, mtime_seconds: stats.mtimeMs / 1000 })
