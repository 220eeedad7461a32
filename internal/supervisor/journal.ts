// Stores one session's events on disk before they are sent, until the server has committed them. One event per line, numbered
// without gaps, in segments named by their first number; a segment is removed when its last event is acknowledged, and an empty
// last segment keeps the position. The process may crash at any time: recovery truncates an incomplete last line. A droid may
// delete its home with the journal in it: lost events are reported as lost, and the rest continues. There is no fsync: the journal
// has to survive the server and this process, not a power failure.
import { closeSync, ftruncateSync, mkdirSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { encodeEvent, lostEvents } from './event-line.ts'
import { inDirectory } from './in-directory.ts'
import { offsetIn, readSegment, recoverSegment, type Segment, truncateSegment } from './journal-segment.ts'

export type JournalOptions = {
  directory: string
  segment_bytes?: number
  /** Limit of unacknowledged bytes; beyond it `full` is true and producers have to wait. */
  limit_bytes?: number
  /** There is something to send. */
  on_append?: () => void
  /** `full` is false again. */
  on_room?: () => void
  on_error?: (error: unknown) => void
}

type Batch = {
  first_seq: number
  last_seq: number
  /** Each the JSON text of one event. */
  lines: string[]
  /** The same, separated by commas. */
  events: string
}

export interface Journal {
  readonly next_seq: number
  readonly acked_seq: number
  readonly full: boolean
  readonly empty: boolean
  /** Of what is not acknowledged. */
  readonly backlog_bytes: number
  /** Numbered at once, written together with what else comes in this turn of the event loop. */
  append(event: { type: string; [field: string]: unknown }): number
  /** False if the disk did not take all of it; it is tried again. */
  flush(): boolean
  /** The events from `seq` on, about `max_bytes` of them; undefined if there are none yet. */
  read(seq: number, max_bytes: number): Batch | undefined
  ack(seq: number): void
  /**
   * Forgets the events from `seq` on: the next one gets that number. All of them are written, and none was ever sent.
   */
  rewind(seq: number): void
  /** The server has more events than this journal: continues after them. */
  skipTo(next_seq: number): void
  /** No more events for now: closes the file, and removes its content if it is acknowledged. */
  settle(): void
  remove(): void
}

const retryMs = 500

export function openJournal(options: JournalOptions): Journal {
  const limit_bytes = options.limit_bytes ?? 64 * 1024 * 1024
  // Several to the limit: only whole segments make room.
  const segment_bytes = options.segment_bytes ?? Math.min(1024 * 1024, limit_bytes / 4)
  const { directory } = options
  mkdirSync(directory, { recursive: true, mode: 0o700 })

  const segments: Segment[] = readdirSync(directory)
    .filter((name) => /^\d{16}\.jsonl$/.test(name))
    .sort()
    .map((name) => recoverSegment(join(directory, name), Number.parseInt(name, 10)))
  // Segments after a damaged one cannot be numbered.
  const broken = segments.findIndex(
    (it, i) => i > 0 && segments[i - 1]!.first + segments[i - 1]!.count !== it.first,
  )
  if (broken > 0) for (const lost of segments.splice(broken)) rmSync(lost.path, { force: true })

  const start = (first: number): Segment => {
    const made = {
      first,
      count: 0,
      bytes: 0,
      path: join(directory, `${String(first).padStart(16, '0')}.jsonl`),
    }
    segments.push(made)
    return made
  }
  let current = segments.at(-1) ?? start(0)
  let fd: number | undefined
  let pending: string[] = []
  let pending_bytes = 0
  let held_bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0)
  let acked_seq = segments[0]!.first - 1
  /** Of `held_bytes`. */
  let acked_bytes = 0
  let was_full = false
  let scheduled = false
  let retry: NodeJS.Timeout | undefined
  let cursor = { seq: -1, path: '', offset: 0 }

  const isFull = () => held_bytes + pending_bytes >= limit_bytes || retry !== undefined
  const notice = () => {
    const full = isFull()
    if (was_full && !full) options.on_room?.()
    was_full = full
  }
  const closeFile = () => {
    if (fd !== undefined) closeSync(fd)
    fd = undefined
  }
  const rotate = (first: number) => {
    closeFile()
    current = start(first)
  }
  const drop = (segment: Segment) => {
    rmSync(segment.path, { force: true })
    held_bytes -= segment.bytes
  }
  const measureAcked = () => {
    acked_bytes = 0
    for (const segment of segments) {
      if (segment.first + segment.count - 1 > acked_seq) {
        if (segment.first <= acked_seq) acked_bytes += offsetIfThere(segment, acked_seq + 1)
        return
      }
      acked_bytes += segment.bytes
    }
  }

  const reopen = () => inDirectory(directory, () => openSync(current.path, 'a+', 0o600))

  function flush(): boolean {
    scheduled = false
    if (pending.length === 0) return true
    if (current.bytes >= segment_bytes) rotate(current.first + current.count)
    const bytes = Buffer.from(pending.join(''))
    try {
      fd ??= reopen()
      for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done)
    } catch (error) {
      // Usually a full disk. A partial line must not remain; the events stay in memory and their producers wait.
      if (fd !== undefined) ftruncateSync(fd, current.bytes)
      options.on_error?.(error)
      retry ??= setTimeout(() => {
        retry = undefined
        flush()
        notice()
      }, retryMs)
      was_full = true
      return false
    }
    current.count += pending.length
    current.bytes += bytes.length
    held_bytes += bytes.length
    pending = []
    pending_bytes = 0
    options.on_append?.()
    notice()
    return true
  }

  const fdOf = (segment: Segment) => (segment === current ? fd : undefined)

  const offsetOf = (segment: Segment, seq: number): number =>
    cursor.seq === seq && cursor.path === segment.path ? cursor.offset : offsetIn(segment, fdOf(segment), seq)

  /** The length of the segment if its file is gone: its events are lost and must not block the journal. */
  function offsetIfThere(segment: Segment, seq: number): number {
    try {
      return offsetOf(segment, seq)
    } catch (error) {
      options.on_error?.(error)
      return segment.bytes
    }
  }

  /** The last segment ends before `seq`. */
  function shorten(seq: number): void {
    let offset = 0
    let is_gone = false
    try {
      offset = offsetOf(current, seq)
      truncateSegment(current, fd, offset)
    } catch (error) {
      options.on_error?.(error)
      is_gone = true
    }
    current.count = seq - current.first
    // What is lost before `seq` keeps its size, and a new file begins behind it.
    if (is_gone && current.count > 0) rotate(seq)
    else {
      held_bytes -= current.bytes - offset
      current.bytes = offset
    }
  }

  function readBatch(segment: Segment, seq: number, max_bytes: number): Batch {
    const offset = offsetOf(segment, seq)
    const rest = segment.bytes - offset
    let bytes = readSegment(segment, fdOf(segment), offset, Math.min(rest, max_bytes))
    let end = bytes.lastIndexOf(0x0a)
    if (end === -1) {
      // One event alone may be larger than a batch should be.
      bytes = readSegment(segment, fdOf(segment), offset, rest)
      end = bytes.indexOf(0x0a)
    }
    if (end === -1) throw new Error(`${segment.path} is shorter than it was`)
    const lines = bytes.toString('utf8', 0, end).split('\n')
    cursor = { seq: seq + lines.length, path: segment.path, offset: offset + end + 1 }
    return { first_seq: seq, last_seq: seq + lines.length - 1, lines, events: lines.join(',') }
  }

  return {
    get next_seq() {
      return current.first + current.count + pending.length
    },
    get acked_seq() {
      return acked_seq
    },
    get full() {
      return isFull()
    },
    get empty() {
      return held_bytes === 0 && pending.length === 0
    },
    get backlog_bytes() {
      return held_bytes - acked_bytes + pending_bytes
    },
    append(event) {
      const seq = current.first + current.count + pending.length
      const line = encodeEvent(seq, event)
      pending.push(line)
      pending_bytes += line.length
      if (!scheduled) {
        scheduled = true
        setImmediate(flush)
      }
      was_full ||= isFull()
      return seq
    },
    flush,
    read(seq, max_bytes) {
      const segment = segments.findLast((it) => it.first <= seq)
      if (!segment || seq >= segment.first + segment.count) return undefined
      try {
        return readBatch(segment, seq, max_bytes)
      } catch (error) {
        options.on_error?.(error)
        return lostEvents(seq, Math.min(segment.first + segment.count, seq + 1000))
      }
    },
    ack(seq) {
      acked_seq = Math.max(acked_seq, Math.min(seq, current.first + current.count - 1))
      while (segments.length > 1 && segments[0]!.first + segments[0]!.count - 1 <= acked_seq)
        drop(segments.shift()!)
      if (current.bytes >= segment_bytes / 4 && acked_seq === current.first + current.count - 1) {
        rotate(acked_seq + 1)
        drop(segments.shift()!)
      }
      measureAcked()
      notice()
    },
    rewind(seq) {
      while (segments.length > 1 && current.first >= seq) {
        closeFile()
        drop(segments.pop()!)
        current = segments.at(-1)!
      }
      if (seq < current.first + current.count) shorten(seq)
      cursor = { seq: -1, path: '', offset: 0 }
      measureAcked()
      notice()
    },
    skipTo(next_seq) {
      flush()
      if (next_seq <= current.first + current.count) return
      rotate(next_seq)
      for (const old of segments.splice(0, segments.length - 1)) drop(old)
      acked_seq = next_seq - 1
      acked_bytes = 0
    },
    settle() {
      flush()
      closeFile()
      if (acked_seq !== current.first + current.count - 1) return
      if (current.count > 0) {
        rotate(acked_seq + 1)
        for (const old of segments.splice(0, segments.length - 1)) drop(old)
        acked_bytes = 0
      }
      // An empty file keeps the number of the next event.
      closeSync(reopen())
    },
    remove() {
      clearTimeout(retry)
      pending = []
      closeFile()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}
