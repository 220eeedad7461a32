// Directory handles: the only way in which the server accesses entries below a directory that a container can write. An entry is
// always addressed relative to the handle of its directory (`/proc/self/fd/N/name`), so no component of a path can be replaced
// between a check and its use, and no link is followed. Names are bytes where entries are walked, because a container may use
// names that are not UTF-8.
import { constants, type Dirent, type Stats } from 'node:fs'
import { chmod, type FileHandle, lstat, open, opendir, rename } from 'node:fs/promises'
import { isRoot } from '../lib/is-root.ts'

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants
/** Missing in Node's constants. Such a handle needs no permission on the entry and does not open it, so no pipe blocks. */
const O_PATH = 0o10000000

export type Name = string | Buffer

export const self = (handle: FileHandle): string => `/proc/self/fd/${handle.fd}`

export const below = (handle: FileHandle, name: Name): string | Buffer =>
  typeof name === 'string'
    ? `${self(handle)}/${name}`
    : Buffer.concat([Buffer.from(`${self(handle)}/`), name])

export const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code

/** Returns `what` for the expected error codes and throws all other errors. */
export async function unless<T, U>(work: Promise<T>, codes: string[], what: U): Promise<T | U> {
  try {
    return await work
  } catch (error) {
    if (codes.includes(codeOf(error) ?? '')) return what
    throw error
  }
}

export const statOf = (path: string | Buffer): Promise<Stats | undefined> =>
  unless(lstat(path), ['ENOENT', 'ENOTDIR'], undefined)

/** A handle to the entry itself, of any type; a link is not followed. */
export const openEntry = (path: string | Buffer): Promise<FileHandle> =>
  open(path as string, O_PATH | O_NOFOLLOW)

/** A real directory, or an error: ELOOP or ENOTDIR for anything else. */
export const openDirectory = (path: string | Buffer): Promise<FileHandle> =>
  open(path as string, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK)

/**
 * As `openDirectory`, also if its owner has no permission on it. Only an unprivileged server, which runs as the same user as
 * the containers, needs this: it first grants the owner the permission through a handle.
 */
export async function openLocked(path: string | Buffer, mode: number): Promise<FileHandle> {
  try {
    return await openDirectory(path)
  } catch (error) {
    if (codeOf(error) !== 'EACCES') throw error
    const entry = await openEntry(path)
    try {
      const stats = await entry.stat()
      if (!stats.isDirectory()) throw error
      await chmod(self(entry), (stats.mode & 0o7777) | mode)
      return await open(self(entry), O_RDONLY | O_DIRECTORY)
    } finally {
      await entry.close()
    }
  }
}

type RawDirent = Omit<Dirent, 'name'> & { name: Buffer }

/** Streams the entries: memory does not grow with the directory, and the event loop is not blocked. */
export async function* entriesOf(handle: FileHandle): AsyncGenerator<RawDirent> {
  // The declared type does not include names as bytes.
  const options = { encoding: 'buffer' as BufferEncoding, bufferSize: 256 }
  for await (const entry of await opendir(self(handle), options)) yield entry as unknown as RawDirent
}

/** Grants the owner access to a directory that a container has locked. Needed without privileges only. */
export async function unlock(directory: FileHandle): Promise<void> {
  if (isRoot()) return
  const { mode } = await directory.stat()
  if ((mode & 0o700) !== 0o700) await directory.chmod((mode & 0o7777) | 0o700)
}

/** Moves an entry. An entry at `to` is replaced where rename(2) allows it, so use a unique name. */
export async function moveEntry(from: string | Buffer, to: string | Buffer): Promise<void> {
  try {
    await rename(from, to)
  } catch (error) {
    if (codeOf(error) !== 'EACCES' || isRoot()) throw error
    // Moving a directory to another parent requires write permission on the directory itself.
    const entry = await openEntry(from)
    try {
      const stats = await entry.stat()
      if (!stats.isDirectory()) throw error
      await chmod(self(entry), (stats.mode & 0o7777) | 0o700)
    } finally {
      await entry.close()
    }
    await rename(from, to)
  }
}
