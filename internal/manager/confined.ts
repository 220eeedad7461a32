// Files of a workspace, reached from the host, without ever leaving the workspace. A path is walked one component
// at a time, each opened below the directory handle of the one before (`/proc/self/fd/N/name`, never following a
// link), so a droid that swaps a directory for a symlink in the middle of the walk gains nothing. Links are followed
// by hand while they stay inside; what lies outside does not exist.
import { constants, type Stats } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, readlink } from 'node:fs/promises'
import { Fault } from '../fault.ts'

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants
const mostLinks = 40

export type Place = {
  /** The directory that holds it. Null for the workspace's own root. */
  parent: FileHandle | null
  /** A path that means exactly this entry, as long as the place is open. Never follow a link at its end. */
  path: string
  /** Relative to the workspace, with links resolved; '' for the root. */
  relative: string
  stats: Stats | undefined
}

type Root = { host: string; inside: string }
type Options = {
  create_parents?: {
    uid: number
    gid: number
    /** Throws if this directory must not be made. */
    check(relative: string): void
  }
  follow_last?: boolean
}

const outside = (path: string) =>
  new Fault('invalid', `path "${path.slice(0, 200)}" leaves the workspace`, {
    hint: 'paths are relative to the workspace',
  })

const below = (handle: FileHandle, name: string) => `/proc/self/fd/${handle.fd}/${name}`

/** Absolute paths are meant as the container sees them. */
function components(path: string, root: Root): string[] {
  if (!path.startsWith('/')) return path.split('/')
  if (path === root.inside || path.startsWith(`${root.inside}/`))
    return path.slice(root.inside.length).split('/')
  throw outside(path)
}

async function lstatOrNothing(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    if (code === 'ENAMETOOLONG')
      throw new Fault('invalid', 'a part of the path is longer than file names can be')
    throw error
  }
}

async function openDirectory(path: string, shown: string): Promise<FileHandle | 'changed'> {
  try {
    return await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ELOOP' || code === 'ENOENT') return 'changed'
    if (code === 'ENOTDIR') throw new Fault('invalid', `"${shown}" is not a directory`)
    throw error
  }
}

/** Each step is checked before it is taken; what fails nevertheless was changed by the droid in between. */
function fileFault(thrown: unknown, path: string): unknown {
  const { code } = thrown as NodeJS.ErrnoException
  const shown = `"${path.slice(0, 200)}"`
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new Fault('exhausted', 'the disk is full', { cause: thrown })
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS')
    return new Fault('forbidden', `the server may not touch ${shown}`, { cause: thrown })
  if (['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ELOOP', 'EINVAL', 'ENXIO', 'ENOTEMPTY'].includes(code ?? ''))
    return new Fault('conflict', `${shown} is being changed by somebody else`, {
      hint: 'try again',
      cause: thrown,
    })
  return thrown
}

/** Walks to `path` and gives what stands there to `use`; every handle is closed afterwards. */
export async function confined<T>(
  root: Root,
  path: string,
  options: Options,
  use: (place: Place) => Promise<T>,
): Promise<T> {
  const handles: FileHandle[] = []
  const names: string[] = []
  try {
    const base = await openDirectory(root.host, '.')
    if (base === 'changed') throw new Fault('not_found', 'the workspace has no directory')
    handles.push(base)
    let rest = components(path, root)
    let links = 0
    let found: { name: string; stats: Stats | undefined } | undefined
    while (rest.length > 0) {
      const [name, ...after] = rest as [string, ...string[]]
      rest = after
      if (name === '' || name === '.') continue
      if (name === '..') {
        if (handles.length === 1) throw outside(path)
        await handles.pop()?.close()
        names.pop()
        continue
      }
      const here = below(handles.at(-1)!, name)
      const last = rest.every((part) => part === '' || part === '.')
      let stats = await lstatOrNothing(here)
      if (stats?.isSymbolicLink() && (!last || options.follow_last !== false)) {
        if (++links > mostLinks) throw new Fault('invalid', `path "${path.slice(0, 200)}" goes in circles`)
        const target = await readlink(here)
        if (target.startsWith('/')) {
          const inner = components(target, root)
          for (const handle of handles.splice(1)) await handle.close()
          names.length = 0
          rest = [...inner, ...rest]
        } else rest = [...target.split('/'), ...rest]
        continue
      }
      if (last) {
        found = { name, stats }
        break
      }
      if (!stats && options.create_parents) {
        options.create_parents.check([...names, name].join('/'))
        await mkdir(here, 0o755).catch((error: NodeJS.ErrnoException) => {
          if (error.code !== 'EEXIST') throw error
        })
        stats = await lstatOrNothing(here)
      }
      if (!stats)
        throw new Fault('not_found', `no directory "${[...names, name].join('/')}" in the workspace`)
      const next = await openDirectory(here, [...names, name].join('/'))
      if (next === 'changed') {
        rest = [name, ...rest]
        if (++links > mostLinks) throw new Fault('conflict', `path "${path.slice(0, 200)}" keeps changing`)
        continue
      }
      if (options.create_parents && process.getuid?.() === 0 && (await next.stat()).uid === 0)
        await next.chown(options.create_parents.uid, options.create_parents.gid)
      handles.push(next)
      names.push(name)
    }
    const top = handles.at(-1)!
    if (!found) {
      const self = `/proc/self/fd/${top.fd}`
      return await use({ parent: null, path: self, relative: names.join('/'), stats: await top.stat() })
    }
    return await use({
      parent: top,
      path: below(top, found.name),
      relative: [...names, found.name].join('/'),
      stats: found.stats,
    })
  } catch (error) {
    throw fileFault(error, path)
  } finally {
    for (const handle of handles) await handle.close()
  }
}
