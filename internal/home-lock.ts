// One server per home. The lock is a file lock of the kernel, taken through SQLite, the only access to such locks in Node. It
// ends with its process, so it never becomes stale and taking it over has no race. It also works between containers that
// share the directory, where pids cannot be compared.
import { randomBytes } from 'node:crypto'
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Fault, messageOf } from './fault.ts'
import { makeDirectory } from './make-directory.ts'

/** `server_id` is what the server of this process answers on `/readyz`; `address` is where it listens. */
export type Holder = { pid: number; started_at: string; server_id?: string; address?: string }
export type HomeLock = { server_id: string; release(): void }

const busy = 5
const private_mode = 0o700
/** `homeHolder` takes the lock for an instant; a starting server waits for that. */
const patience_ms = 500

const lockFile = (home: string) => join(home, 'lock')
const holderFile = (home: string) => join(home, 'daemon.json')

const isBusy = (error: unknown) => (error as { errcode?: number }).errcode === busy

function readHolder(home: string): Holder | undefined {
  try {
    return JSON.parse(readFileSync(holderFile(home), 'utf8')) as Holder
  } catch (error) {
    // The file is written after the lock is taken.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cannotUse(home, error)
  }
}

function sign(home: string, address: string): string {
  const server_id = randomBytes(8).toString('hex')
  const holder: Holder = { pid: process.pid, started_at: new Date().toISOString(), server_id, address }
  const draft = `${holderFile(home)}.new`
  writeFileSync(draft, `${JSON.stringify(holder)}\n`, { mode: 0o600 })
  renameSync(draft, holderFile(home))
  return server_id
}

const cannotUse = (home: string, error: unknown): Fault =>
  new Fault('unavailable', `cannot use OUBLIETTE_HOME ${home}: ${messageOf(error)}`, {
    hint: 'set OUBLIETTE_HOME to a directory that this user can create or write to',
    cause: error,
  })

/** Creates the home if it does not exist. Throws if it cannot be written, before a set-up that takes minutes. */
export function ensureHome(home: string): void {
  try {
    makeDirectory(home, private_mode)
    accessSync(home, constants.R_OK | constants.W_OK | constants.X_OK)
    const probe = join(home, `.probe-${process.pid}`)
    writeFileSync(probe, '')
    rmSync(probe)
  } catch (error) {
    throw cannotUse(home, error)
  }
}

/** The same check; a home that does not exist yet is not left behind. */
export function checkHome(home: string): void {
  const exists = existsSync(home)
  ensureHome(home)
  if (!exists) rmdirSync(home)
}

/** Held until `release` or the end of the process. Throws `conflict` if another server uses this home. */
export function lockHome(home: string, address = ''): HomeLock {
  let server_id: string
  let file: DatabaseSync | undefined
  try {
    makeDirectory(home, private_mode)
    file = new DatabaseSync(lockFile(home), { timeout: patience_ms })
    // Nothing is ever written, so there is nothing to recover: no journal file beside the lock.
    file.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    chmodSync(lockFile(home), 0o600)
    server_id = sign(home, address)
  } catch (error) {
    file?.close()
    if (!isBusy(error)) throw cannotUse(home, error)
    const pid = readHolder(home)?.pid
    throw new Fault('conflict', `another server${pid ? ` (pid ${pid})` : ''} is running on ${home}`, {
      hint: 'stop it with "oubliette down", or set OUBLIETTE_HOME to another directory',
    })
  }
  const held = file
  return {
    server_id,
    release: () => {
      if (!held.isOpen) return
      rmSync(holderFile(home), { force: true })
      held.close()
    },
  }
}

/** The process that uses this home, without taking the lock; undefined if there is none. */
export function homeHolder(home: string): Holder | undefined {
  const holder = readHolder(home)
  if (!holder) return undefined
  let file: DatabaseSync | undefined
  try {
    file = new DatabaseSync(lockFile(home), { timeout: 0 })
    file.exec('SELECT 1 FROM sqlite_schema')
    return undefined
  } catch (error) {
    if (!isBusy(error)) throw cannotUse(home, error)
    return holder
  } finally {
    file?.close()
  }
}
