// `./oubliette restore`: makes a home out of a backup. The archive is checked completely before anything is written, and only an
// empty home and an empty database are filled. The files of the home are written last: a home with `restore-incomplete` is
// refused by the server.
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readdir, rm, writeFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { Readable } from 'node:stream'
import { type Settings, settingsOf } from '../../../internal/config/load.ts'
import { configFileOf, homeOf } from '../../../internal/config/place.ts'
import { Fault } from '../../../internal/fault.ts'
import { lockHome } from '../../../internal/home-lock.ts'
import { createLog, type Log, type Secret } from '../../../internal/log.ts'
import { openLoad, requireEmptyDatabase } from '../../../internal/store/backup/load.ts'
import { startEmbedded } from '../../../internal/store/embedded/embedded.ts'
import { type Command, checkout, options, Usage } from '../command.ts'
import { createProgress, type Progress } from '../setup/progress.ts'
import { interruption, untilInterrupted } from './backup.ts'
import { dataOf, type Verified, verify } from './read-archive.ts'
import { restoreProject, writePrivate } from './sources.ts'

const markerOf = (home: string): string => join(home, 'restore-incomplete')
const instanceFile = 'instance-id'

/** Throws `conflict` if an interrupted restore has left this home half filled. */
export function requireWhole(home: string): void {
  if (existsSync(markerOf(home)))
    throw new Fault('conflict', `a restore into ${home} was interrupted`, {
      hint: 'delete the directory, and run "./oubliette restore" again',
    })
}

/** Whether the directory exists. */
async function requireEmptyHome(home: string): Promise<boolean> {
  const found = await readdir(home).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw new Fault('invalid', `cannot use OUBLIETTE_HOME ${home}: ${error.code}`)
  })
  if (found && found.length > 0) {
    requireWhole(home)
    throw new Fault('conflict', `OUBLIETTE_HOME ${home} is not empty`, {
      hint: 'set OUBLIETTE_HOME to a new directory',
    })
  }
  return found !== undefined
}

type Target = { file: string; home: string; settings: Settings; verified: Verified; new_instance: boolean }
type Restored = { tables: number; rows: number; files: number }

async function fill(
  { file, home, settings, verified, new_instance }: Target,
  database_url: Secret,
  { log, signal, progress }: { log: Log; signal: AbortSignal; progress: Progress },
): Promise<Restored> {
  const { manifest, home_files } = verified
  const restored: Restored = { tables: 0, rows: 0, files: 0 }
  const load = await openLoad(database_url, manifest.migrations, log)
  try {
    for await (const { stream, content } of dataOf(file, manifest, signal)) {
      progress.detail(`${stream.kind} ${stream.name}`)
      if (stream.kind === 'project')
        restored.files += await restoreProject(home, stream.name, content, {
          container_uid: settings.config.container_uid,
          signal,
        })
      if (stream.kind !== 'table') continue
      const rows = await load.table(stream.name, stream.columns ?? [], Readable.from(content))
      if (rows !== stream.rows)
        throw new Fault('invalid', `the table "${stream.name}" has ${rows} rows instead of ${stream.rows}`)
      restored.rows += rows
    }
    restored.tables = manifest.streams.filter(({ kind }) => kind === 'table').length
    if (new_instance) {
      const id = randomBytes(6).toString('hex')
      await load.renewInstance(id)
      home_files.set(instanceFile, Buffer.from(`${id}\n`))
    }
    progress.detail('checking references')
    await load.commit(manifest.sequences)
  } catch (error) {
    await load.abandon().catch((cause: unknown) => log.warn('failed to empty the database again', { cause }))
    throw error
  }
  for (const [name, content] of home_files) await writePrivate(join(home, name), content)
  return restored
}

async function restoreInto(
  target: Target,
  parts: { log: Log; signal: AbortSignal; progress: Progress },
): Promise<Restored> {
  const { home, settings } = target
  const existed = await requireEmptyHome(home)
  if (settings.database_url) await requireEmptyDatabase(settings.database_url)
  const lock = lockHome(home)
  try {
    await writeFile(markerOf(home), '', { mode: 0o600 })
    const embedded = settings.database_url ? undefined : await startEmbedded({ home, log: parts.log })
    const restored = await fill(target, settings.database_url ?? embedded!.url, parts).finally(() =>
      embedded?.stop(),
    )
    await rm(markerOf(home))
    return restored
  } catch (error) {
    // It was empty: everything in it is from this restore.
    for (const name of await readdir(home)) await rm(join(home, name), { recursive: true, force: true })
    if (!existed) await rm(home, { recursive: true, force: true })
    throw error
  } finally {
    lock.release()
  }
}

async function run(args: string[]): Promise<undefined> {
  const { values, positionals } = options(
    args,
    { 'new-instance': { type: 'boolean', default: false }, verify: { type: 'boolean', default: false } },
    true,
  )
  const [given, ...rest] = positionals
  if (given === undefined) throw new Usage('missing FILE')
  if (rest.length > 0) throw new Usage(`unexpected argument "${rest[0]}"`)
  if (given === '-') throw new Usage('a backup is read twice, so it cannot come from the standard input')
  const file = resolve(given)
  const home = homeOf(process.env, checkout)
  const began = performance.now()
  const signal = untilInterrupted()
  const progress = createProgress()
  const log = createLog({ level: 'warn' })
  try {
    if (!values.verify) await requireEmptyHome(home)
    const verified = await verify(file, signal, (bytes) =>
      progress.detail(`checking ${basename(file)}: ${(bytes / 1_000_000).toFixed(1)} MB`),
    )
    const { manifest } = verified
    progress.end()
    const made = `made by ${manifest.oubliette_version} at ${manifest.created_at}`
    if (values.verify) {
      process.stdout.write(`${file} is complete, ${made}.\n`)
      return
    }
    const config = verified.home_files.get(basename(configFileOf(home)))?.toString('utf8') ?? ''
    const settings = settingsOf(process.env, home, config)
    const problem = settings.problems[0]
    if (problem) throw problem
    const target = { file, home, settings, verified, new_instance: values['new-instance'] }
    const { tables, rows, files } = await restoreInto(target, { log, signal, progress })
    const seconds = ((performance.now() - began) / 1000).toFixed(1)
    const copied = manifest.has_workspaces ? `, ${files.toLocaleString('en-US')} files of projects` : ''
    progress.end()
    process.stdout.write(
      `Restored ${home} from ${basename(file)}, ${made}: ${tables} tables, ${rows.toLocaleString('en-US')} rows${copied}, ${seconds} s.\nRun "./oubliette up" to start the server.\n`,
    )
  } catch (error) {
    throw interruption(error, signal)
  } finally {
    progress.end()
  }
}

export const restore: Command = {
  about: 'Restore a backup into an empty home',
  usage: '[OPTIONS] FILE',
  details: `OUBLIETTE_HOME must be empty or missing. The database is the one of DATABASE_URL, or of the config in the backup, which must be empty; otherwise an embedded database is created. The whole archive is checked before anything is written.

The restored server has the same instance id, and takes over the containers of the original. Do not run both on one engine: use --new-instance for a copy beside the original.`,
  options: [
    ['--new-instance', 'Give the copy an instance id of its own'],
    ['--verify', 'Check the archive and write nothing'],
  ],
  examples: [
    'OUBLIETTE_HOME=/srv/oubliette ./oubliette restore oubliette-backup.tar.gz',
    './oubliette restore --verify oubliette-backup.tar.gz',
  ],
  run,
}
