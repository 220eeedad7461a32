// One file of a journal: consecutive events, one per line.
import { closeSync, ftruncateSync, openSync, readFileSync, readSync, truncateSync } from 'node:fs'

export type Segment = { first: number; count: number; bytes: number; path: string }

function seqOf(line: string): unknown {
  try {
    return (JSON.parse(line) as { seq?: unknown } | null)?.seq
  } catch {
    return undefined
  }
}

/** After a crash: keeps complete lines with consecutive numbers and truncates the rest. */
export function recoverSegment(path: string, first: number): Segment {
  const bytes = readFileSync(path)
  let good = 0
  let count = 0
  for (;;) {
    const end = bytes.indexOf(0x0a, good)
    if (end === -1 || seqOf(bytes.toString('utf8', good, end)) !== first + count) break
    good = end + 1
    count++
  }
  if (good < bytes.length) truncateSync(path, good)
  return { first, count, bytes: good, path }
}

/** `fd`, if it is open. */
export function readSegment(
  { path }: Segment,
  fd: number | undefined,
  offset: number,
  length: number,
): Buffer {
  const from = fd ?? openSync(path, 'r')
  try {
    const buffer = Buffer.allocUnsafe(length)
    return buffer.subarray(0, readSync(from, buffer, 0, length, offset))
  } finally {
    if (fd === undefined) closeSync(from)
  }
}

/** Where the event with this number begins, by counting lines. */
export function offsetIn(segment: Segment, fd: number | undefined, seq: number): number {
  const bytes = readSegment(segment, fd, 0, segment.bytes)
  let offset = 0
  for (let skip = seq - segment.first; skip > 0; skip--) offset = bytes.indexOf(0x0a, offset) + 1
  return offset
}

export function truncateSegment({ path }: Segment, fd: number | undefined, length: number): void {
  if (fd === undefined) truncateSync(path, length)
  else ftruncateSync(fd, length)
}
