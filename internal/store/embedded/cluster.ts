// The directory of the embedded server: where its parts are, and how its data directory is made once.
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
const socket = '.s.PGSQL.5432'
/** What the kernel has room for in a socket's address, the closing zero not counted. */
const socketPathBytes = process.platform === 'linux' ? 107 : 103

export type Cluster = {
  directory: string
  data: string
  log_file: string
  /** In the command line of each of its processes: tells them from any other PostgreSQL. */
  name: string
  url: string
}

/**
 * A path to the working directory that needs no permission on the directories above it. Data in a closed place (a
 * home of mode 0700) is entered while we are still root, and stays usable for the account that we then become. The
 * alternative, data elsewhere and a link to it, leaves data behind when somebody deletes or moves the home.
 */
export const here = (data: string) => (process.platform === 'linux' ? '/proc/self/cwd' : data)

/** Little of ours: no caller's variables, locale or library path may change what the server does. */
export const environment = { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }

export function directoryOf(home: string): string {
  const directory = join(home, 'postgres')
  const bytes = Buffer.byteLength(join(directory, socket))
  if (bytes > socketPathBytes)
    throw new Fault('invalid', `OUBLIETTE_HOME is too long for a Unix socket: ${home}`, {
      hint: `make it ${bytes - socketPathBytes} bytes shorter, or set DATABASE_URL`,
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

/** A home that root copied belongs to root, down to the last file. */
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
          hint: 'set DATABASE_URL to use a PostgreSQL of your own',
        }),
      )
    })
  })
}

/** Made under another name and renamed when it is whole and on the disk: a killed initdb leaves nothing in the way. */
async function initialise(directory: string, bin: string, account: Account | undefined): Promise<void> {
  const draft = join(directory, `data.new-${randomBytes(4).toString('hex')}`)
  await mkdir(draft, { mode: 0o700 })
  await own(draft, account)
  await run(
    join(bin, 'initdb'),
    [
      ...['-D', here(draft), '-U', user, '--pwfile=../password', '--auth=scram-sha-256', '--no-instructions'],
      // The collation of the server itself: sorting does not change when the system's libraries do.
      ...['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'],
    ],
    draft,
    account,
  )
  const rules = await open(join(draft, 'pg_hba.conf'), 'w', 0o600)
  await rules.writeFile(`local all ${user} scram-sha-256\n`)
  await rules.sync()
  await rules.close()
  await rename(draft, join(directory, 'data'))
  await sync(directory)
}

/** Closed from the first moment on, before anything is in it. */
export async function makeDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await chmod(directory, 0o700)
}

/** The cluster of this home, made if it is not there. The caller holds the home's lock. */
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
    log.info('database directory made', { data, ms: Math.round(performance.now() - started) })
  }
  if (version !== undefined && version !== major)
    throw new Fault('unavailable', `${data} was made by PostgreSQL ${version}, this is ${major}`, {
      hint: 'restore a backup into a new OUBLIETTE_HOME, or run the release that made it',
    })
  return await knownCluster(home)
}

/** The cluster that exists. */
export async function knownCluster(home: string): Promise<Cluster> {
  const directory = directoryOf(home)
  const password = await readIfThere(join(directory, 'password'))
  if (!password)
    throw new Fault('unavailable', `${join(directory, 'password')} is missing`, {
      hint: 'restore it from a backup: it opens the database beside it',
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
