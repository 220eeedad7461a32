// One server per home. The lock is a file lock of the kernel, taken through SQLite, the only access to such locks in Node. It
// ends with its process, so it never becomes stale and taking it over has no race. It also works between containers that
// share the directory, where pids cannot be compared.
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Fault, messageOf } from './fault.ts'

export type Holder = { pid: number; started_at: string }
export type HomeLock = { release(): void }

const busy = 5
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
    throw error
  }
}

function sign(home: string): void {
  const holder: Holder = { pid: process.pid, started_at: new Date().toISOString() }
  const draft = `${holderFile(home)}.new`
  writeFileSync(draft, `${JSON.stringify(holder)}\n`, { mode: 0o600 })
  renameSync(draft, holderFile(home))
}

/** Held until `release` or the end of the process. Throws `conflict` if another server uses this home. */
export function lockHome(home: string): HomeLock {
  let file: DatabaseSync | undefined
  try {
    mkdirSync(home, { recursive: true, mode: 0o700 })
    file = new DatabaseSync(lockFile(home), { timeout: patience_ms })
    // Nothing is ever written, so there is nothing to recover: no journal file beside the lock.
    file.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    chmodSync(lockFile(home), 0o600)
    sign(home)
  } catch (error) {
    file?.close()
    if (!isBusy(error))
      throw new Fault('unavailable', `cannot use OUBLIETTE_HOME ${home}: ${messageOf(error)}`, {
        cause: error,
      })
    const pid = readHolder(home)?.pid
    throw new Fault('conflict', `another server${pid ? ` (pid ${pid})` : ''} is running on ${home}`, {
      hint: 'stop it with "oubliette down", or set OUBLIETTE_HOME to another directory',
    })
  }
  const held = file
  return {
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
  const file = new DatabaseSync(lockFile(home), { timeout: 0 })
  try {
    file.exec('SELECT 1 FROM sqlite_schema')
    return undefined
  } catch (error) {
    if (!isBusy(error)) throw error
    return holder
  } finally {
    file.close()
  }
}
