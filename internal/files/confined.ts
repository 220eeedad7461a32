// Accesses files of a workspace from the host without leaving the workspace. A path is walked one component at a time, each
// opened relative to the directory handle of the previous one (`/proc/self/fd/N/name`, without following links), so replacing a
// directory by a symlink during the walk has no effect. Links are resolved here as long as they stay inside; targets outside do
// not exist. A walk holds two handles, whatever the length of the path.
import { constants, type Stats } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, readlink } from 'node:fs/promises'
import { Fault } from '../fault.ts'
import { isRoot } from '../lib/is-root.ts'

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants
const maxLinks = 40
/** Directories that one walk may open: more than a path can name, fewer than links and `..` can require. */
const maxSteps = 4_000

export type Place = {
  /** The directory that holds it. Null for the workspace's own root. */
  parent: FileHandle | null
  /** A path of exactly this entry while the place is open. Do not follow a link at its end. */
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
    /** Throws if this directory must not be created. */
    check(relative: string): void
  }
  follow_last?: boolean
}

const outside = (path: string) =>
  new Fault('invalid', `path "${path.slice(0, 200)}" leaves the workspace`, {
    hint: 'use a path relative to the workspace',
  })

const below = (handle: FileHandle, name: string) => `/proc/self/fd/${handle.fd}/${name}`

/** The remaining components, the next one last. Absolute paths are paths inside the container. */
function components(path: string, root: Root): string[] {
  let inner = path
  if (path.startsWith('/')) {
    if (path !== root.inside && !path.startsWith(`${root.inside}/`)) throw outside(path)
    inner = path.slice(root.inside.length)
  }
  return inner
    .split('/')
    .filter((part) => part !== '' && part !== '.')
    .reverse()
}

async function lstatOrNothing(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    if (code === 'ENAMETOOLONG')
      throw new Fault('invalid', 'a component of the path is longer than a file name may be')
    throw error
  }
}

async function openDirectory(path: string, shown: string): Promise<FileHandle | 'changed'> {
  try {
    return await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ELOOP' || code === 'ENOENT') return 'changed'
    if (code === 'ENOTDIR') throw new Fault('invalid', `"${shown}" is not a directory`)
    throw error
  }
}

/** Each step is checked first; an error after the check means that the droid changed the entry in between. */
function fileFault(thrown: unknown, path: string): unknown {
  const { code } = thrown as NodeJS.ErrnoException
  const shown = `"${path.slice(0, 200)}"`
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new Fault('exhausted', 'the disk is full', { cause: thrown })
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS')
    return new Fault('forbidden', `the server has no permission to access ${shown}`, { cause: thrown })
  if (['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ELOOP', 'EINVAL', 'ENXIO', 'ENOTEMPTY'].includes(code ?? ''))
    return new Fault('conflict', `${shown} was changed by another process during the call`, {
      hint: 'retry',
      cause: thrown,
    })
  return thrown
}

/** A walk from the root of a workspace to a directory in it. */
async function createWalk(root: Root, path: string) {
  const opened = await openDirectory(root.host, '.')
  if (opened === 'changed') throw new Fault('not_found', 'the directory of the workspace does not exist')
  const base: FileHandle = opened
  let here = base
  let names: string[] = []
  let steps = 0

  async function shut(): Promise<void> {
    if (here !== base) await here.close()
    here = base
  }

  /** False if the entry is not, or is no longer, a directory. */
  async function enter(name: string): Promise<boolean> {
    if (++steps > maxSteps) throw new Fault('invalid', `path "${path.slice(0, 200)}" has too many components`)
    const next = await openDirectory(below(here, name), [...names, name].join('/'))
    if (next === 'changed') return false
    await shut()
    here = next
    names.push(name)
    return true
  }

  async function toRoot(): Promise<void> {
    await shut()
    names = []
  }

  return {
    enter,
    toRoot,
    here: () => here,
    relative: (...more: string[]) => [...names, ...more].join('/'),
    /** Walks again from the root: `..` of a handle leads to wherever the directory was moved. */
    async up(): Promise<void> {
      if (names.length === 0) throw outside(path)
      const again = names.slice(0, -1)
      await toRoot()
      for (const name of again)
        if (!(await enter(name)))
          throw new Fault(
            'conflict',
            `path "${path.slice(0, 200)}" was changed by another process during the call`,
          )
    },
    async close(): Promise<void> {
      await shut()
      await base.close()
    },
  }
}

/** Walks to `path` and passes the entry to `use`; all handles are closed afterwards. */
export async function confined<T>(
  root: Root,
  path: string,
  options: Options,
  use: (place: Place) => Promise<T>,
): Promise<T> {
  let walk: Awaited<ReturnType<typeof createWalk>> | undefined
  try {
    walk = await createWalk(root, path)
    const rest = components(path, root)
    let links = 0
    let found: { name: string; stats: Stats | undefined } | undefined
    for (let name = rest.pop(); name !== undefined; name = rest.pop()) {
      if (name === '..') {
        await walk.up()
        continue
      }
      const here = below(walk.here(), name)
      const last = rest.length === 0
      let stats = await lstatOrNothing(here)
      if (stats?.isSymbolicLink() && (!last || options.follow_last !== false)) {
        if (++links > maxLinks)
          throw new Fault('invalid', `path "${path.slice(0, 200)}" has too many levels of symbolic links`)
        const target = await readlink(here)
        const inner = components(target, root)
        if (target.startsWith('/')) await walk.toRoot()
        for (const part of inner) rest.push(part)
        continue
      }
      if (last) {
        found = { name, stats }
        break
      }
      if (!stats && options.create_parents) {
        options.create_parents.check(walk.relative(name))
        await mkdir(here, 0o755).catch((error: NodeJS.ErrnoException) => {
          if (error.code !== 'EEXIST') throw error
        })
        stats = await lstatOrNothing(here)
      }
      if (!stats) throw new Fault('not_found', `no directory "${walk.relative(name)}" in the workspace`)
      if (!(await walk.enter(name))) {
        rest.push(name)
        if (++links > maxLinks)
          throw new Fault(
            'conflict',
            `path "${path.slice(0, 200)}" was changed by another process during the call`,
          )
        continue
      }
      const made = options.create_parents
      if (made && isRoot() && (await walk.here().stat()).uid === 0)
        await walk.here().chown(made.uid, made.gid)
    }
    const top = walk.here()
    if (!found) {
      const self = `/proc/self/fd/${top.fd}`
      return await use({ parent: null, path: self, relative: walk.relative(), stats: await top.stat() })
    }
    return await use({
      parent: top,
      path: below(top, found.name),
      relative: walk.relative(found.name),
      stats: found.stats,
    })
  } catch (error) {
    throw fileFault(error, path)
  } finally {
    await walk?.close()
  }
}
