// Produces the bytes of a backup at the pace of their reader. Memory is bounded by the size of one part.
import { createHash } from 'node:crypto'
import { endOfArchive, headerOf, paddingOf } from '../../../internal/files/archive/header.ts'
import type { Snapshot } from '../../../internal/store/backup/snapshot.ts'
import { version } from '../command.ts'
import { format, formatFile, type Manifest, manifestFile, type StreamEntry, streamPath } from './manifest.ts'

const partBytes = 1024 * 1024

/** One stream of the archive. */
export type Source = {
  kind: StreamEntry['kind']
  name: string
  columns?: string[]
  open(): AsyncIterable<Uint8Array>
  /** Rows of a table, when it has been read. */
  rows?(): number
}

function* fileEntry(name: string, content: Buffer, mtime_seconds: number): Generator<Buffer> {
  yield headerOf({ name, type: 'file', mode: 0o600, size: content.length, mtime_seconds })
  yield content
  yield paddingOf(content.length)
}

/** Buffers of exactly `partBytes`, and a shorter last one. */
async function* partsOf(content: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let chunks: Uint8Array[] = []
  let bytes = 0
  for await (let chunk of content) {
    while (bytes + chunk.length >= partBytes) {
      const used = partBytes - bytes
      yield Buffer.concat([...chunks, chunk.subarray(0, used)])
      chunk = chunk.subarray(used)
      chunks = []
      bytes = 0
    }
    if (chunk.length > 0) chunks.push(chunk)
    bytes += chunk.length
  }
  if (bytes > 0) yield Buffer.concat(chunks)
}

export type Written = { rows: number; bytes: number; tables: number }

export async function* writeArchive(options: {
  snapshot: Snapshot
  sources: Source[]
  has_workspaces: boolean
  signal: AbortSignal
  /** Called for each part. */
  progress(source: Source, bytes: number): void
  done(written: Written): void
}): AsyncGenerator<Buffer> {
  const { snapshot, sources, signal } = options
  const now = new Date()
  const head = { format, oubliette_version: version(), created_at: now.toISOString() }
  const seconds = now.getTime() / 1000
  const streams: StreamEntry[] = []
  const jsonOf = (value: unknown) => Buffer.from(`${JSON.stringify(value, null, 2)}\n`)
  yield* fileEntry(formatFile, jsonOf(head), seconds)
  for (const source of sources) {
    const hash = createHash('sha256')
    let bytes = 0
    let number = 0
    for await (const part of partsOf(source.open())) {
      signal.throwIfAborted()
      hash.update(part)
      bytes += part.length
      const path = `data/${streamPath(source)}/${String(++number).padStart(6, '0')}`
      yield* fileEntry(path, part, seconds)
      options.progress(source, bytes)
    }
    streams.push({
      kind: source.kind,
      name: source.name,
      bytes,
      sha256: hash.digest('hex'),
      ...(source.columns ? { columns: source.columns } : {}),
      ...(source.rows ? { rows: source.rows() } : {}),
    })
  }
  const { migrations, sequences, postgres_version } = snapshot
  const { has_workspaces } = options
  const manifest: Manifest = { ...head, postgres_version, migrations, sequences, has_workspaces, streams }
  yield* fileEntry(manifestFile, jsonOf(manifest), seconds)
  yield endOfArchive
  const sum = (of: (one: StreamEntry) => number) => streams.reduce((total, one) => total + of(one), 0)
  options.done({
    rows: sum(({ rows = 0 }) => rows),
    bytes: sum(({ bytes }) => bytes),
    tables: streams.filter(({ kind }) => kind === 'table').length,
  })
}
