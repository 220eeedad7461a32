// Reads, writes and lists files of a workspace through confined paths.
import { randomBytes } from 'node:crypto'
import { constants, type Stats } from 'node:fs'
import { type FileHandle, open, readlink, rename, unlink } from 'node:fs/promises'
import { Fault } from '../fault.ts'
import { isRoot } from '../lib/is-root.ts'
import { type Extracted, type ExtractOptions, extractTree } from './archive/extract.ts'
import { type Packed, packTree } from './archive/pack.ts'
import { confined, type Place } from './confined.ts'
import { below, entriesOf, openDirectory, statOf } from './handles.ts'
import { createSmallest } from './smallest.ts'

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_WRONLY, O_CREAT, O_EXCL } = constants

export type Root = { host: string; inside: string; uid: number; gid: number; protected_paths: string[] }
type Kind = 'file' | 'directory' | 'symlink' | 'other'

const kindOf = (stats: Stats): Kind =>
  stats.isFile() ? 'file' : stats.isDirectory() ? 'directory' : stats.isSymbolicLink() ? 'symlink' : 'other'

const lastTime_ms = Date.parse('9999-12-31T23:59:59.999Z')

const entryOf = (stats: Stats) => ({
  type: kindOf(stats),
  size_bytes: stats.size,
  mode: (stats.mode & 0o7777).toString(8).padStart(4, '0'),
  modified_at: timeOf(stats),
})

/** A file may have a time that a date cannot represent. */
const timeOf = ({ mtimeMs }: Stats): string =>
  new Date(Math.max(0, Math.min(lastTime_ms, mtimeMs || 0))).toISOString()

const missing = (path: string) => new Fault('not_found', `no file "${path.slice(0, 200)}" in the workspace`)

/** Runs one task at a time for each key; `waiting` more may queue, and further ones are refused. */
function createQueue({ waiting: most }: { waiting: number }) {
  const queues = new Map<string, (() => void)[]>()

  return async (key: string): Promise<() => void> => {
    const queue = queues.get(key)
    if (!queue) queues.set(key, [])
    else if (queue.length >= most)
      throw new Fault(
        'exhausted',
        `${most} listings of large directories are already queued for this workspace`,
        {
          hint: 'retry when they have finished',
        },
      )
    else await new Promise<void>((resolve) => queue.push(resolve))
    return () => {
      const next = queues.get(key)!.shift()
      if (next) next()
      else queues.delete(key)
    }
  }
}

/** Entries that a listing reads without queuing; each page of a larger directory reads all of it. */
const quickEntries = 4_096
const queued = createQueue({ waiting: 16 })

/** The first `limit` names after the cursor. The directory is streamed, because it may have millions of entries. */
async function namesOf(handle: FileHandle, key: string, page: { limit: number; cursor?: string }) {
  const smallest = createSmallest(page.limit)
  let read = 0
  let release: (() => void) | undefined
  try {
    for await (const entry of entriesOf(handle)) {
      const name = entry.name.toString('utf8')
      // A name that is not UTF-8 can be neither shown nor requested.
      if ((page.cursor === undefined || name > page.cursor) && Buffer.from(name).equals(entry.name))
        smallest.add(name)
      if (++read === quickEntries) release = await queued(key)
    }
  } finally {
    release?.()
  }
  return smallest.take()
}

export async function listDir(root: Root, path: string, page: { limit: number; cursor?: string }) {
  return await confined(root, path, {}, async (place) => {
    if (!place.stats) throw missing(path)
    if (!place.stats.isDirectory())
      throw new Fault('invalid', `"${path}" is not a directory`, { hint: 'use read_file' })
    // Opened and listed through its handle, so that the checked directory is the one that is read.
    const handle = await open(place.path, O_RDONLY | O_DIRECTORY | (place.parent ? O_NOFOLLOW : 0))
    try {
      const { names, more } = await namesOf(handle, root.host, page)
      const entries = []
      for (const name of names) {
        const stats = await statOf(below(handle, name))
        // Removed since the directory was read.
        if (stats) entries.push({ name, ...entryOf(stats) })
      }
      return { path: place.relative, entries, next_cursor: more ? names.at(-1)! : null }
    } finally {
      await handle.close()
    }
  })
}

export async function readFile(root: Root, path: string, range: { offset: number; max_bytes: number }) {
  return await confined(root, path, {}, async (place) => {
    if (!place.stats) throw missing(path)
    if (!place.stats.isFile())
      throw new Fault('invalid', `"${path}" is not a regular file but a ${kindOf(place.stats)}`)
    // O_NONBLOCK: if it has become a pipe since, this must not wait for a writer.
    const handle = await open(place.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try {
      const stats = await handle.stat()
      if (!stats.isFile())
        throw new Fault('conflict', `"${path}" was changed by another process during the call`)
      const buffer = Buffer.alloc(Math.max(0, Math.min(range.max_bytes, stats.size - range.offset)))
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, range.offset)
      const bytes = buffer.subarray(0, bytesRead)
      const text = decode(bytes)
      return {
        path: place.relative,
        content: text ?? bytes.toString('base64'),
        encoding: text === undefined ? ('base64' as const) : ('utf8' as const),
        size_bytes: stats.size,
        offset: range.offset,
        truncated: range.offset + bytesRead < stats.size,
      }
    } finally {
      await handle.close()
    }
  })
}

/** JSON encodes a control character as six characters, so data with many of them is shorter and faster in base64. */
function isMostlyControl(bytes: Buffer): boolean {
  let control = 0
  for (const byte of bytes) if (byte < 0x20 && byte !== 0x0a && byte !== 0x09 && byte !== 0x0d) control++
  return control > bytes.length / 8
}

function decode(bytes: Buffer): string | undefined {
  if (isMostlyControl(bytes)) return undefined
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

/** Throws `forbidden` if the project protects this path. */
function checkProtected(root: Root, relative: string): void {
  const guard = root.protected_paths.find(
    (guarded) => relative === guarded || relative.startsWith(`${guarded}/`),
  )
  if (guard) throw new Fault('forbidden', `"${relative}" is protected by the project ("${guard}")`)
}

/** The path of the root is itself a link of the kernel, which is not followed at the end of a path. */
const entryPath = ({ parent, path }: Place): string => (parent ? path : `${path}/.`)

export type OpenArchive = {
  stream: AsyncIterable<Buffer>
  /** Complete when the stream was read to its end. */
  packed(): Packed
  /** Must be called, whether the stream was read or not. */
  close(): void
}

/** The entry at `path` and everything below it as a tar archive. It is found before this returns. */
export async function packPath(root: Root, path: string): Promise<OpenArchive> {
  const found = Promise.withResolvers<ReturnType<typeof packTree>>()
  const closed = Promise.withResolvers<void>()
  // The handles on the way to the entry stay open until the archive is closed.
  const walk = confined(root, path, { follow_last: false }, async (place) => {
    if (!place.stats) throw missing(path)
    const top = (place.relative || root.inside).split('/').at(-1)!
    found.resolve(packTree({ path: entryPath(place), stats: place.stats }, top, { one_file_system: true }))
    await closed.promise
  })
  walk.catch(found.reject)
  return { ...(await found.promise), close: closed.resolve }
}

/** Extracts a tar archive into the directory at `path`. */
export async function extractPath(
  root: Root,
  path: string,
  archive: AsyncIterable<Uint8Array>,
  options: Pick<ExtractOptions, 'charge' | 'signal'>,
): Promise<Extracted & { path: string }> {
  return await confined(root, path, {}, async (place) => {
    if (!place.stats) throw new Fault('not_found', `no directory "${path.slice(0, 200)}" in the workspace`)
    if (!place.stats.isDirectory())
      throw new Fault('invalid', `"${path}" is a ${kindOf(place.stats)}, not a directory`)
    const base = await openDirectory(entryPath(place))
    try {
      const extracted = await extractTree(archive, base, {
        ...options,
        ...(isRoot() ? { owner: { uid: root.uid, gid: root.gid } } : {}),
        check: (components) =>
          checkProtected(root, [...(place.relative ? [place.relative] : []), ...components].join('/')),
      })
      return { path: place.relative, ...extracted }
    } finally {
      await base.close()
    }
  })
}

export async function writeFile(
  root: Root,
  path: string,
  bytes: Buffer,
  options: { mode?: string; create_parents: boolean },
) {
  const owner = { uid: root.uid, gid: root.gid }
  const check = (relative: string) => checkProtected(root, relative)
  return await confined(
    root,
    path,
    options.create_parents ? { create_parents: { ...owner, check } } : {},
    async (place) => {
      if (!place.parent) throw new Fault('invalid', 'path is the root of the workspace')
      check(place.relative)
      if (place.stats && !place.stats.isFile())
        throw new Fault('conflict', `"${path}" is a ${kindOf(place.stats)}`)
      const mode = options.mode
        ? Number.parseInt(options.mode, 8)
        : place.stats
          ? place.stats.mode & 0o777
          : 0o644
      // Written to a temporary file and renamed, so that no reader sees a partial file and a crash leaves the old one.
      const temporary = `/proc/self/fd/${place.parent.fd}/.oubliette-${randomBytes(6).toString('hex')}`
      const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode)
      try {
        await handle.writeFile(bytes)
        await handle.chmod(mode)
        if (isRoot()) await handle.chown(owner.uid, owner.gid)
        await handle.sync()
        await rename(temporary, place.path)
      } catch (error) {
        await unlink(temporary).catch(() => undefined)
        throw error
      } finally {
        await handle.close()
      }
      return { path: place.relative, size_bytes: bytes.length, created: !place.stats }
    },
  )
}

export async function pathInfo(root: Root, path: string) {
  try {
    return await confined(root, path, { follow_last: false }, async (place) => {
      if (!place.stats) return { path: place.relative, exists: false }
      const target = place.stats.isSymbolicLink() ? await readlink(place.path) : null
      return { path: place.relative, exists: true, ...entryOf(place.stats), target }
    })
  } catch (error) {
    // A missing parent directory is an answer here, not an error.
    if (error instanceof Fault && error.kind === 'not_found') return { path, exists: false }
    throw error
  }
}
