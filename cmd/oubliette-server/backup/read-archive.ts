// Reads a backup. `verify` reads all of it and compares every stream with the manifest; a restore then reads it again, so that
// nothing is written from an archive that is damaged at its end.
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { extract, type Header } from 'tar-stream'
import type { z } from 'zod'
import { Fault, messageOf } from '../../../internal/fault.ts'
import { unknownMigrations } from '../../../internal/store/backup/load.ts'
import {
  format,
  formatFile,
  formatSchema,
  type Manifest,
  manifestFile,
  manifestSchema,
  streamPath,
} from './manifest.ts'

/** Larger than any manifest, and than any file of a home. */
const smallFileBytes = 64 * 1024 * 1024

type Entry = AsyncIterable<unknown> & { header: Header }
type ReadStream = { path: string; content: AsyncGenerator<Buffer> }

const damaged = (file: string, why: string, cause?: unknown) =>
  new Fault('invalid', `${file} is damaged or not a backup: ${why}`, {
    hint: 'nothing was changed; use another backup',
    cause,
  })

async function* entriesOf(file: string, signal: AbortSignal): AsyncGenerator<Entry> {
  const tar = extract()
  let wake = () => {}
  tar.on('drain', () => wake())
  tar.on('close', () => wake())
  const drained = () =>
    new Promise<void>((resolve) => {
      wake = resolve
      if (tar.destroyed) resolve()
    })
  const source = pipeline(createReadStream(file), createGunzip(), async (bytes: AsyncIterable<Buffer>) => {
    for await (const chunk of bytes) {
      signal.throwIfAborted()
      if (!tar.write(chunk)) await drained()
      if (tar.destroyed) return
    }
    tar.end(undefined)
  })
  // An error of the source must end the loop below, which then throws it.
  const feeding = source.catch((error: unknown) => void tar.destroy(error as Error))
  try {
    for await (const entry of tar) yield entry
  } finally {
    tar.destroy()
    await feeding
  }
}

/** Streams in the order of the archive. Each must be read before the next. */
async function* streamsOf(file: string, signal: AbortSignal): AsyncGenerator<ReadStream> {
  const entries = entriesOf(file, signal)
  try {
    let current = await entries.next()
    while (!current.done) {
      const { name } = current.value.header
      const path = name.startsWith('data/') ? name.replace(/^data\/(.*)\/\d+$/, '$1') : name
      const prefix = `data/${path}/`
      const content = async function* (): AsyncGenerator<Buffer> {
        while (!current.done) {
          const entry = current.value
          if (entry.header.name !== name && !entry.header.name.startsWith(prefix)) return
          for await (const chunk of entry) yield chunk as Buffer
          current = await entries.next()
        }
      }
      const reading = content()
      yield { path, content: reading }
      // Whatever the consumer has not read.
      for await (const _ of reading);
    }
  } finally {
    await entries.return(undefined)
  }
}

async function smallFile(content: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of content) {
    bytes += chunk.length
    if (bytes > smallFileBytes) throw new Error('an entry is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const parse = <Schema extends z.ZodType>(schema: Schema, content: Buffer): z.infer<Schema> =>
  schema.parse(JSON.parse(content.toString('utf8')))

function requireKnown({ format: found, oubliette_version }: z.infer<typeof formatSchema>): void {
  if (found > format)
    throw new Fault('conflict', `the backup was made by a newer release (${oubliette_version})`, {
      hint: 'restore it with that release',
    })
}

type Seen = Map<string, { bytes: number; sha256: string }>

function compare(manifest: Manifest, seen: Seen, file: string): void {
  for (const stream of manifest.streams) {
    const path = streamPath(stream)
    // An empty stream has no entries.
    const found = seen.get(path) ?? { bytes: 0, sha256: createHash('sha256').digest('hex') }
    seen.delete(path)
    if (found.bytes !== stream.bytes || found.sha256 !== stream.sha256)
      throw damaged(file, `the checksum of ${path} is wrong`)
  }
  const [extra] = seen.keys()
  if (extra !== undefined) throw damaged(file, `${extra} is not in its manifest`)
}

export type Verified = {
  manifest: Manifest
  /** Files of the home, by name. */
  home_files: Map<string, Buffer>
}

async function readAll(
  file: string,
  signal: AbortSignal,
  progress: (bytes: number) => void,
): Promise<Verified> {
  const seen: Seen = new Map()
  const home_files = new Map<string, Buffer>()
  let manifest: Manifest | undefined
  let total = 0
  let first = true
  for await (const { path, content } of streamsOf(file, signal)) {
    if (first !== (path === formatFile)) throw damaged(file, 'it does not begin with its format')
    first = false
    if (path === formatFile) {
      requireKnown(parse(formatSchema, await smallFile(content)))
      continue
    }
    if (path === manifestFile) {
      manifest = parse(manifestSchema, await smallFile(content))
      continue
    }
    const hash = createHash('sha256')
    let bytes = 0
    const kept: Buffer[] = []
    for await (const chunk of content) {
      hash.update(chunk)
      bytes += chunk.length
      total += chunk.length
      if (path.startsWith('home/')) kept.push(chunk)
      if (path.startsWith('home/') && bytes > smallFileBytes) throw damaged(file, `${path} is too large`)
      progress(total)
    }
    seen.set(path, { bytes, sha256: hash.digest('hex') })
    if (path.startsWith('home/')) home_files.set(path.slice('home/'.length), Buffer.concat(kept))
  }
  if (!manifest) throw damaged(file, 'it ends before its manifest')
  compare(manifest, seen, file)
  return { manifest, home_files }
}

export async function verify(
  file: string,
  signal: AbortSignal,
  progress: (bytes: number) => void,
): Promise<Verified> {
  let verified: Verified
  try {
    verified = await readAll(file, signal, progress)
  } catch (error) {
    if (error instanceof Fault || signal.aborted) throw error
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') throw new Fault('not_found', `no file ${file}`)
    if (code === 'EACCES' || code === 'EISDIR') throw new Fault('invalid', `cannot read ${file}: ${code}`)
    throw damaged(file, messageOf(error).split('\n')[0]!, error)
  }
  const unknown = unknownMigrations(verified.manifest.migrations)
  if (unknown.length > 0)
    throw new Fault(
      'conflict',
      `the backup was made by a newer release (${verified.manifest.oubliette_version}): it has ${unknown.join(', ')}`,
      { hint: 'restore it with that release' },
    )
  return verified
}

/** The data of a verified archive: tables, then projects. */
export async function* dataOf(
  file: string,
  { streams }: Manifest,
  signal: AbortSignal,
): AsyncGenerator<{ stream: Manifest['streams'][number]; content: AsyncGenerator<Buffer> }> {
  const byPath = new Map(streams.map((stream) => [streamPath(stream), stream]))
  for await (const { path, content } of streamsOf(file, signal)) {
    const stream = byPath.get(path)
    if (stream) yield { stream, content }
  }
}
