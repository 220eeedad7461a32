// The directory of the embedded server: its layout, and the creation of its data directory.
import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { chmod, chown, lchown, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault } from '../../fault.ts'
import type { Log } from '../../log.ts'
import type { Account } from './account.ts'
import type { Programs } from './binaries.ts'
import { endProcessesIn } from './postmaster.ts'

const user = 'oubliette'
/** Of the roles for read-only queries; all of them have it. */
export const readRolePrefix = 'oubliette_read_'
const socket = '.s.PGSQL.5432'
/** The maximum path length of a Unix socket, without the terminating zero. */
const socketPathBytes = process.platform === 'linux' ? 107 : 103

export type Cluster = {
  directory: string
  data: string
  log_file: string
  /** In the command line of each of its processes, to distinguish them from those of any other PostgreSQL. */
  name: string
  url: string
}

/**
 * A path to the working directory that needs no permission on its parent directories. The daemon enters the directory as
 * root, and it stays usable for the unprivileged account even if the home has mode 0700. The alternative, a link to data
 * elsewhere, leaves data behind when the home is deleted or moved.
 */
export const here = (data: string) => (process.platform === 'linux' ? '/proc/self/cwd' : data)

/** Minimal, so that the variables, locale or library path of the daemon do not affect the server. */
export const environment = { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }

export function directoryOf(home: string): string {
  const directory = join(home, 'postgres')
  const bytes = Buffer.byteLength(join(directory, socket))
  if (bytes > socketPathBytes)
    throw new Fault('invalid', `OUBLIETTE_HOME is too long for a Unix socket: ${home}`, {
      hint: `use a path that is ${bytes - socketPathBytes} bytes shorter, or set DATABASE_URL`,
    })
  return directory
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r')
  await handle.sync()
  await handle.close()
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** In a home that was copied by root, all files belong to root. */
async function adopt(directory: string, account: Account | undefined): Promise<void> {
  if (!account || (await stat(directory)).uid === account.uid) return
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }))
    await lchown(join(entry.parentPath, entry.name), account.uid, account.gid)
  await chown(directory, account.uid, account.gid)
}

async function own(path: string, account: Account | undefined): Promise<void> {
  if (account) await chown(path, account.uid, account.gid)
}

async function newPassword(directory: string, account: Account | undefined): Promise<string> {
  const password = randomBytes(32).toString('hex')
  const draft = join(directory, 'password.new')
  await rm(draft, { force: true })
  const handle = await open(draft, 'wx', 0o600)
  await handle.writeFile(`${password}\n`)
  await handle.sync()
  await handle.close()
  await own(draft, account)
  await rename(draft, join(directory, 'password'))
  await sync(directory)
  return password
}

function run(program: string, args: string[], cwd: string, account: Account | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd,
      env: environment,
      stdio: ['ignore', 'pipe', 'pipe'],
      ...account,
    })
    let said = ''
    const hear = (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-4000)
    }
    child.stdout.on('data', hear)
    child.stderr.on('data', hear)
    child.on('error', reject)
    child.on('close', (code, signal) => {
      if (code === 0) return resolve()
      const reason = said.split('\n').find((line) => /error|fatal/i.test(line)) ?? said.trim()
      reject(
        new Fault('unavailable', `initdb failed (${signal ?? code}): ${reason}`, {
          hint: 'set DATABASE_URL to use another PostgreSQL',
        }),
      )
    })
  })
}

/** Who may connect: the server, and its account for read-only queries. An existing file is replaced in one step. */
async function writeRules(data: string, account: Account | undefined): Promise<void> {
  const file = join(data, 'pg_hba.conf')
  const text = `local all ${user} scram-sha-256\nlocal all /^${readRolePrefix} scram-sha-256\n`
  if ((await readIfThere(file)) === text.trim()) return
  const rules = await open(`${file}.new`, 'w', 0o600)
  await rules.writeFile(text)
  await rules.sync()
  await rules.close()
  await own(`${file}.new`, account)
  await rename(`${file}.new`, file)
}

/** Created under a temporary name and renamed when it is complete and synced to disk, so that initdb can be killed. */
async function initialise(directory: string, bin: string, account: Account | undefined): Promise<void> {
  const draft = join(directory, `data.new-${randomBytes(4).toString('hex')}`)
  await mkdir(draft, { mode: 0o700 })
  await own(draft, account)
  await run(
    join(bin, 'initdb'),
    [
      ...['-D', here(draft), '-U', user, '--pwfile=../password', '--auth=scram-sha-256', '--no-instructions'],
      // The builtin collation: the sort order does not depend on the libraries of the system.
      ...['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'],
    ],
    draft,
    account,
  )
  await writeRules(draft, account)
  await rename(draft, join(directory, 'data'))
  await sync(directory)
}

/** Private from its creation. */
export async function makeDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await chmod(directory, 0o700)
}

/** The cluster of this home, created if missing. The caller holds the lock of the home. */
export async function ensureCluster(
  home: string,
  { bin, major }: Programs,
  account: Account | undefined,
  log: Log,
): Promise<Cluster> {
  const directory = directoryOf(home)
  await adopt(directory, account)
  for (const name of await readdir(directory))
    if (name.startsWith('data.new-')) {
      await endProcessesIn(join(directory, name))
      await rm(join(directory, name), { recursive: true, force: true, maxRetries: 5 })
    }
  const data = join(directory, 'data')
  const version = await readIfThere(join(data, 'PG_VERSION'))
  if (version === undefined) {
    const started = performance.now()
    await newPassword(directory, account)
    await initialise(directory, bin, account)
    log.info('created the database directory', { data, ms: Math.round(performance.now() - started) })
  }
  if (version !== undefined && version !== major)
    throw new Fault(
      'unavailable',
      `${data} was created by PostgreSQL ${version}, but this release uses ${major}`,
      {
        hint: 'restore a backup into a new OUBLIETTE_HOME, or run the release that created it',
      },
    )
  if (version !== undefined) await writeRules(data, account)
  return await knownCluster(home)
}

/** The existing cluster. */
export async function knownCluster(home: string): Promise<Cluster> {
  const directory = directoryOf(home)
  const password = await readIfThere(join(directory, 'password'))
  if (!password)
    throw new Fault('unavailable', `${join(directory, 'password')} is missing`, {
      hint: 'restore the file from a backup: it is the password of the database in the same directory',
    })
  const data = join(directory, 'data')
  const query = new URLSearchParams({ host: directory })
  return {
    directory,
    data,
    log_file: join(directory, 'postgres.log'),
    name: `oubliette-${createHash('sha256').update(password).digest('hex').slice(0, 16)}`,
    url: `postgresql://${user}:${password}@localhost/postgres?${query}`,
  }
}
