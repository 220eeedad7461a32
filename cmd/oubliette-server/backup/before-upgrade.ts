// A server of a newer release backs up an older database before it migrates it. The last few of these backups are kept.
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault, messageOf } from '../../../internal/fault.ts'
import type { Log, Secret } from '../../../internal/log.ts'
import { pendingMigrations, unknownMigrations } from '../../../internal/store/backup/load.ts'
import { readMigrations } from '../../../internal/store/backup/snapshot.ts'
import { createBackup } from './create.ts'

const kept = 3
const own = /^before-.*\.tar\.gz$/

export const backupsOf = (home: string): string => join(home, 'backups')

/** By the time in their names, oldest first. */
async function prune(directory: string): Promise<void> {
  const timeOf = (name: string) => /-([0-9TZ]+)\.tar\.gz$/.exec(name)?.[1] ?? ''
  const found = (await readdir(directory)).filter((name) => own.test(name))
  found.sort((a, b) => timeOf(a).localeCompare(timeOf(b)))
  for (const name of found.slice(0, -kept)) await rm(join(directory, name), { force: true })
}

export async function backUpBeforeUpgrade(home: string, database_url: Secret, log: Log): Promise<void> {
  const applied = await readMigrations(database_url)
  const pending = pendingMigrations(applied)
  // A new database has nothing to lose, and one of a newer release is refused.
  if (applied.length === 0 || pending.length === 0 || unknownMigrations(applied).length > 0) return
  const directory = backupsOf(home)
  const time = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')
  const file = join(directory, `before-${pending[0]}-${time}.tar.gz`)
  const began = performance.now()
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const { rows, file_bytes } = await createBackup({
      home,
      database_url,
      file,
      workspaces: false,
      signal: new AbortController().signal,
      progress: () => undefined,
    })
    const ms = Math.round(performance.now() - began)
    log.info('backed up the database before its migration', { file, rows, file_bytes, ms })
    await prune(directory)
  } catch (error) {
    throw new Fault(
      'unavailable',
      `failed to back up the database before its migration: ${messageOf(error)}`,
      {
        hint: 'the database was not changed; free disk space, or set backup_before_upgrade to false in oubliette.jsonc',
        cause: error,
      },
    )
  }
}
