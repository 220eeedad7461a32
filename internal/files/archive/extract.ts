// Extracts a tar archive below a directory handle. Neither the archive nor the tree is trusted: an entry is created relative to
// the handle of its directory, no link is followed, and nothing outside of the directory can be named. Only files, directories
// and symbolic links are created; set-user-id and similar bits are dropped. What cannot be created is left out with a reason,
// and the rest is extracted. Memory does not grow with the archive.
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lchown, mkdir, open, rename, symlink, unlink } from 'node:fs/promises'
import { extract, type Header } from 'tar-stream'
import { Fault, messageOf } from '../../fault.ts'
import { below, codeOf, openDirectory, unless } from '../handles.ts'
import { createSkipped, type Skipped } from './notes.ts'
import { mostLevels } from './pack.ts'

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants
const componentBytes = 255
const linkBytes = 4095

export type Extracted = { files: number; directories: number; links: number; bytes: number; skipped: Skipped }
export type ExtractOptions = {
  /** Of everything that is created; without it, the user of this process. */
  owner?: { uid: number; gid: number }
  /** The components under which an entry is created; undefined leaves it out. */
  place?(components: string[]): string[] | undefined
  /** Throws a fault if this entry must not be created: it is left out. */
  check?(components: string[], header: Header): void
  /** Called before an entry is created; a fault ends the extraction. */
  charge?(size_bytes: number): Promise<void>
  signal?: AbortSignal
  /** Bytes written so far. */
  progress?(bytes: number, files: number): void
}

/** Of one entry; others end the extraction. */
const reasons: Record<string, string> = {
  ENOENT: 'its directory was removed by another process',
  ENOTDIR: 'a part of its path is not a directory',
  ELOOP: 'a part of its path is a symbolic link',
  EEXIST: 'something else has its name',
  EISDIR: 'a directory has its name',
  ENOTEMPTY: 'a directory has its name',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EINVAL: 'the name is not allowed here',
  ENAMETOOLONG: 'the name is too long',
}
const refusedTypes: Record<string, string> = {
  link: 'is a hard link',
  'block-device': 'is a device',
  'character-device': 'is a device',
  fifo: 'is a named pipe',
}

/** Throws a fault that says why the name is refused. */
export function componentsOf(name: string): string[] {
  const refuse = (why: string) => new Fault('invalid', why)
  if (name.startsWith('/')) throw refuse('the name is absolute')
  if (name.includes('\0')) throw refuse('the name contains a NUL character')
  const components = name.split('/').filter((part) => part !== '' && part !== '.')
  if (components.includes('..')) throw refuse('the name contains ".."')
  if (components.length > mostLevels) throw refuse(`it is deeper than ${mostLevels} levels`)
  if (components.some((part) => Buffer.byteLength(part) > componentBytes))
    throw refuse('the name is too long')
  return components
}

/** The directories from the base to the entry that was created last, each with a handle. */
function createLevels(base: FileHandle, owner: ExtractOptions['owner'], made: () => void) {
  const levels: { name: string; handle: FileHandle }[] = []

  async function shutTo(count: number): Promise<void> {
    for (const { handle } of levels.splice(count).reverse()) await handle.close()
  }

  async function enter(parent: FileHandle, name: string, mode: number): Promise<FileHandle> {
    const path = below(parent, name)
    const is_new = await unless(
      mkdir(path, 0o700).then(() => true),
      ['EEXIST'],
      false,
    )
    const handle = await openDirectory(path)
    if (is_new) {
      try {
        await handle.chmod(mode)
        if (owner) await handle.chown(owner.uid, owner.gid)
      } catch (error) {
        await handle.close()
        throw error
      }
      made()
    }
    return handle
  }

  return {
    async directory(components: string[], mode = 0o755): Promise<FileHandle> {
      let same = 0
      while (same < levels.length && levels[same]!.name === components[same]) same++
      await shutTo(Math.min(same, components.length))
      for (let at = levels.length; at < components.length; at++) {
        const parent = levels.at(-1)?.handle ?? base
        const last = at === components.length - 1
        const name = components[at]!
        levels.push({ name, handle: await enter(parent, name, last ? mode : 0o755) })
      }
      return levels.at(-1)?.handle ?? base
    },
    close: () => shutTo(0),
  }
}

async function writeAll(handle: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length; ) {
    const { bytesWritten } = await handle.write(chunk, at, chunk.length - at)
    at += bytesWritten
  }
}

/** Created under another name and renamed, so that no reader sees half of it and an existing link is replaced. */
async function replacing(
  parent: FileHandle,
  name: string,
  create: (path: string) => Promise<void>,
): Promise<void> {
  const temporary = below(parent, `.oubliette-${randomBytes(8).toString('hex')}`) as string
  try {
    await create(temporary)
    await rename(temporary, below(parent, name))
  } catch (error) {
    await unlink(temporary).catch(() => undefined)
    throw error
  }
}

export async function extractTree(
  archive: AsyncIterable<Uint8Array>,
  base: FileHandle,
  options: ExtractOptions = {},
): Promise<Extracted> {
  const { owner, signal } = options
  const skipped = createSkipped()
  const done = { files: 0, directories: 0, links: 0, bytes: 0 }
  const levels = createLevels(base, owner, () => {
    done.directories += 1
  })

  async function file(parent: FileHandle, name: string, header: Header, content: AsyncIterable<Uint8Array>) {
    await replacing(parent, name, async (path) => {
      const handle = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
      try {
        for await (const chunk of content) {
          signal?.throwIfAborted()
          await writeAll(handle, chunk)
          done.bytes += chunk.length
          options.progress?.(done.bytes, done.files)
        }
        const time = header.mtime.getTime() / 1000
        if (Number.isFinite(time) && time >= 0) await handle.utimes(time, time)
        await handle.chmod(header.mode & 0o777)
        if (owner) await handle.chown(owner.uid, owner.gid)
      } finally {
        await handle.close()
      }
    })
    done.files += 1
    options.progress?.(done.bytes, done.files)
  }

  async function link(parent: FileHandle, name: string, target: string) {
    if (target === '' || target.includes('\0') || Buffer.byteLength(target) > linkBytes)
      throw new Fault('invalid', 'the target of the link is not valid')
    await replacing(parent, name, async (path) => {
      await symlink(target, path)
      if (owner) await lchown(path, owner.uid, owner.gid)
    })
    done.links += 1
  }

  /** Throws a fault to leave the entry out. */
  async function create(header: Header, content: AsyncIterable<Uint8Array>): Promise<void> {
    const named = componentsOf(header.name)
    const refused = refusedTypes[header.type]
    if (refused) throw new Fault('invalid', refused)
    const components = options.place ? options.place(named) : named
    // The base itself, or an entry that is not wanted.
    if (!components || components.length === 0) return
    options.check?.(components, header)
    const name = components.at(-1)!
    if (header.type === 'directory')
      return void (await levels.directory(components, (header.mode & 0o777) | 0o700))
    const parent = await levels.directory(components.slice(0, -1))
    if (header.type === 'symlink') return await link(parent, name, header.linkname)
    if (header.type !== 'file' && header.type !== 'contiguous-file')
      throw new Fault('invalid', 'has an unknown type')
    await file(parent, name, header, content)
  }

  const tar = extract()
  let failed: unknown
  tar.on('error', (error) => {
    failed ??= error
  })
  let wake = () => {}
  tar.on('drain', () => wake())
  tar.on('close', () => wake())
  const drained = () =>
    new Promise<void>((resolve) => {
      wake = resolve
      if (tar.destroyed) resolve()
    })
  async function feed(): Promise<void> {
    try {
      for await (const chunk of archive) {
        if (tar.destroyed) return
        if (!tar.write(chunk)) await drained()
      }
      tar.end(undefined)
    } catch (error) {
      failed ??= error
      tar.destroy(error as Error)
    }
  }
  const fed = feed()
  try {
    for await (const entry of tar) {
      signal?.throwIfAborted()
      await options.charge?.(Number(entry.header.size) || 0)
      try {
        await create(entry.header, entry as AsyncIterable<Uint8Array>)
      } catch (error) {
        const reason =
          error instanceof Fault && error.kind !== 'exhausted' ? error.message : reasons[codeOf(error) ?? '']
        if (reason === undefined || signal?.aborted) throw error
        skipped.add(entry.header.name, reason)
      }
      entry.resume()
    }
    await fed
    return { ...done, skipped: skipped.result() }
  } catch (error) {
    tar.destroy()
    // A stream that was cut in the middle of a file does not say why.
    throw explained(codeOf(error) === 'STREAM_DESTROYED' ? (failed ?? error) : error, done)
  } finally {
    await levels.close()
  }
}

const shown = ({ files, bytes }: { files: number; bytes: number }) =>
  `${files} files (${bytes} bytes) were written before`

/** What was written stays, so the error says how much that is. */
function explained(error: unknown, done: { files: number; bytes: number }): unknown {
  if (error instanceof Fault)
    return new Fault(error.kind, `${error.message}; ${shown(done)}`, {
      ...(error.hint ? { hint: error.hint } : {}),
      cause: error,
    })
  const code = codeOf(error)
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new Fault('exhausted', `the disk is full; ${shown(done)}`, { cause: error })
  // The errors of the parser have no code.
  if (code === undefined && error instanceof Error && !(error instanceof TypeError))
    return new Fault('invalid', `the archive is not valid: ${messageOf(error)}; ${shown(done)}`, {
      cause: error,
    })
  return error
}
