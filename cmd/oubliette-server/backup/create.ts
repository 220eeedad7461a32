// Writes a backup of a home to a file or a stream, from a snapshot of its database. Needs no lock: the server keeps running.
import { createWriteStream } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { Fault } from '../../../internal/fault.ts'
import type { Skipped } from '../../../internal/files/archive/notes.ts'
import type { Secret } from '../../../internal/log.ts'
import { openSnapshot } from '../../../internal/store/backup/snapshot.ts'
import { homeSources, projectSources, tableSources } from './sources.ts'
import { type Written, writeArchive } from './write-archive.ts'

/** Most of the time is spent on compression; higher levels save little of what is mostly JSON. */
const compression = { level: 1, chunkSize: 256 * 1024 }

export type Created = Written & { skipped: Skipped; file_bytes: number | undefined }
type Options = {
  home: string
  database_url: Secret
  /** Undefined is the standard output. */
  file: string | undefined
  workspaces: boolean
  signal: AbortSignal
  progress(text: string): void
}

const megabytes = (bytes: number) => `${(bytes / 1_000_000).toFixed(1)} MB`

async function refuseExisting(file: string): Promise<void> {
  const found = await stat(file).catch(() => undefined)
  if (found)
    throw new Fault('conflict', `${file} already exists`, { hint: 'choose another name, or delete it first' })
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r')
  await handle.sync()
  await handle.close()
}

async function archive(
  options: Options,
  out: NodeJS.WritableStream,
): Promise<Written & { skipped: Skipped }> {
  const { home, database_url, signal, workspaces } = options
  const skipped: Skipped = { count: 0, entries: [] }
  const leaveOut = ({ count, entries }: Skipped) => {
    skipped.count += count
    skipped.entries.push(...entries.slice(0, 20 - skipped.entries.length))
  }
  let written: Written = { rows: 0, bytes: 0, tables: 0 }
  const snapshot = await openSnapshot(database_url)
  try {
    if (snapshot.migrations.length === 0)
      throw new Fault('not_found', 'there is nothing to back up: no server has used this database', {
        hint: 'run "./oubliette up" first, or check OUBLIETTE_HOME and DATABASE_URL',
      })
    const content = writeArchive({
      snapshot,
      sources: [
        ...tableSources(snapshot),
        ...(await homeSources(home, options.file ? [options.file] : [])),
        ...(workspaces ? await projectSources(home, leaveOut) : []),
      ],
      has_workspaces: workspaces,
      signal,
      progress: ({ kind, name }, bytes) => options.progress(`${kind} ${name}: ${megabytes(bytes)}`),
      done: (result) => {
        written = result
      },
    })
    await pipeline(content, createGzip(compression), out, { signal, end: out !== process.stdout })
  } finally {
    await snapshot.close().catch(() => undefined)
  }
  return { ...written, skipped }
}

/** The file appears under its name when it is complete and on disk. Its mode is 0600. */
export async function createBackup(options: Options): Promise<Created> {
  const { file } = options
  if (file === undefined) return { ...(await archive(options, process.stdout)), file_bytes: undefined }
  await refuseExisting(file)
  const draft = `${file}.${process.pid}.partial`
  try {
    const written = await archive(options, createWriteStream(draft, { flags: 'wx', mode: 0o600 }))
    await sync(draft)
    const { size } = await stat(draft)
    await rename(draft, file)
    await sync(dirname(file))
    return { ...written, file_bytes: size }
  } catch (error) {
    await rm(draft, { force: true })
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'EACCES' || code === 'ENOTDIR' || code === 'EROFS')
      throw new Fault('invalid', `cannot write ${file}: ${code}`, {
        hint: 'choose a directory that exists and that this user can write to',
        cause: error,
      })
    if (code === 'ENOSPC' || code === 'EDQUOT')
      throw new Fault('exhausted', `cannot write ${file}: the disk is full`, { cause: error })
    throw error
  }
}
