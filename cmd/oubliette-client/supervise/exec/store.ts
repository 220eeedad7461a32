// Records and output of detached commands on the container's disk, where they survive restarts of the server and of the
// container. The total size is bounded: output of the oldest ended commands is removed first, and what still does not fit is
// dropped. A droid runs as the same user and may write or delete anything here, so records are validated when they are read,
// and files are always created new, so that no link or pipe of the droid is opened.
import {
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import type { Log } from '../../../../internal/log.ts'
import type { ExecEnding } from '../../../../internal/protocol/messages.ts'

const { O_WRONLY, O_CREAT, O_EXCL, O_APPEND } = constants
const recordBytes = 16 * 1024

export type Stream = 'stdout' | 'stderr'
export type ExecRecord = {
  exec_id: string
  /** Null while it runs. */
  ending: ExecEnding | null
  /** Whether the server has committed the ending. */
  settled: boolean
}

const statuses = ['exited', 'timed_out', 'killed', 'lost'] as const
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0
const countOf = (value: unknown): number => (isCount(value) ? value : 0)

/** Rebuilt from the valid fields: the server refuses a hello with any other field. */
function readEnding(
  value: Partial<Record<keyof ExecEnding, unknown>>,
  exec_id: string,
): ExecEnding | undefined {
  const status = statuses.find((it) => it === value.status)
  const at = Date.parse(String(value.ended_at))
  if (!status || Number.isNaN(at)) return undefined
  return {
    exec_id,
    status,
    exit_code: isCount(value.exit_code) && value.exit_code <= 255 ? value.exit_code : null,
    reason: typeof value.reason === 'string' ? value.reason.slice(0, 500) : null,
    ended_at: new Date(Math.min(at, Date.now())).toISOString(),
    stdout_bytes: countOf(value.stdout_bytes),
    stderr_bytes: countOf(value.stderr_bytes),
  }
}

function sizeOf(path: string): number {
  const stats = lstatSync(path, { throwIfNoEntry: false })
  return stats?.isFile() ? stats.size : 0
}

export function openExecStore(directory: string, log: Log) {
  /** Bytes of output that are kept, by command. */
  const sizes = new Map<string, number>()
  let total = 0
  const placeOf = (exec_id: string) => join(directory, exec_id)
  const warn = (what: string, exec_id: string, error: unknown) => log.warn(what, { exec_id, error })

  function count(exec_id: string, bytes: number): void {
    sizes.set(exec_id, (sizes.get(exec_id) ?? 0) + bytes)
    total += bytes
  }

  function remove(exec_id: string): void {
    total -= sizes.get(exec_id) ?? 0
    sizes.delete(exec_id)
    discard(placeOf(exec_id))
  }

  /** A droid may have made it undeletable. It then stays and counts towards the project's disk limit. */
  function discard(path: string): void {
    try {
      rmSync(path, { recursive: true, force: true })
    } catch (error) {
      log.warn('failed to remove files of a detached command', { path, error })
    }
  }

  /** The names in the directory, which is recreated if it is not a directory. Empty if that fails. */
  function names(): string[] {
    try {
      if (!lstatSync(directory, { throwIfNoEntry: false })?.isDirectory())
        rmSync(directory, { recursive: true, force: true })
      mkdirSync(directory, { recursive: true, mode: 0o700 })
      return readdirSync(directory)
    } catch (error) {
      log.warn('failed to read records of detached commands', { error })
      return []
    }
  }

  function read(exec_id: string): ExecRecord | undefined {
    const file = join(placeOf(exec_id), 'exec.json')
    try {
      if (!lstatSync(file).isFile() || sizeOf(file) > recordBytes) return undefined
      const { ending, settled } = JSON.parse(readFileSync(file, 'utf8')) as ExecRecord
      const read = ending ? readEnding(ending, exec_id) : null
      return read === undefined ? undefined : { exec_id, ending: read, settled: settled === true }
    } catch {
      // Incomplete, or not written by the supervisor.
      return undefined
    }
  }

  return {
    /** Existing records, oldest first. Anything else in the directory is removed. */
    load(): ExecRecord[] {
      const found: { record: ExecRecord; at: number }[] = []
      for (const name of names()) {
        const record = /^exec_[0-9a-z]{12,40}$/.test(name) ? read(name) : undefined
        if (!record) discard(join(directory, name))
        else {
          count(name, sizeOf(join(directory, name, 'stdout')) + sizeOf(join(directory, name, 'stderr')))
          found.push({ record, at: lstatSync(join(directory, name)).mtimeMs })
        }
      }
      return found.sort((a, b) => a.at - b.at).map(({ record }) => record)
    },
    save(record: ExecRecord): void {
      const file = join(placeOf(record.exec_id), 'exec.json')
      try {
        mkdirSync(placeOf(record.exec_id), { recursive: true, mode: 0o700 })
        rmSync(`${file}.new`, { recursive: true, force: true })
        writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o600, flag: 'wx' })
        renameSync(`${file}.new`, file)
      } catch (error) {
        // Disk full. This process still has the record in memory; after a restart the server settles the command.
        warn('failed to write the record of a detached command', record.exec_id, error)
      }
    },
    /** Stores output, up to `limit` bytes of each stream. */
    openOutput(exec_id: string, limit: number, total_bytes: number, make_room: (bytes: number) => void) {
      const files = new Map<Stream, number>()
      const kept = { stdout: 0, stderr: 0 }
      const most = { stdout: limit, stderr: limit }
      const open = (stream: Stream): number => {
        const known = files.get(stream)
        if (known !== undefined) return known
        mkdirSync(placeOf(exec_id), { recursive: true, mode: 0o700 })
        const flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND
        const fd = openSync(join(placeOf(exec_id), stream), flags, 0o600)
        files.set(stream, fd)
        return fd
      }
      return {
        kept,
        write(stream: Stream, chunk: Buffer): void {
          const wanted = Math.min(chunk.length, most[stream] - kept[stream])
          if (wanted <= 0) return
          if (total + wanted > total_bytes) make_room(total + wanted - total_bytes)
          const room = Math.max(0, Math.min(wanted, total_bytes - total))
          if (room === 0) return
          try {
            const written = writeSync(open(stream), chunk, 0, room)
            kept[stream] += written
            count(exec_id, written)
          } catch (error) {
            warn('failed to store output of a detached command', exec_id, error)
            most[stream] = 0
          }
        },
        close(): void {
          for (const fd of files.values()) closeSync(fd)
          files.clear()
        },
      }
    },
    /** Bytes of both streams, and of one stream as stored on disk. */
    sizeOf: (exec_id: string): number => sizes.get(exec_id) ?? 0,
    bytesOf: (exec_id: string, stream: Stream): number => sizeOf(join(placeOf(exec_id), stream)),
    remove,
  }
}
