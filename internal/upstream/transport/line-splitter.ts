// Splits a stream of bytes into lines. Lines may be split over chunks, and a chunk may have several. A line over the limit is not
// kept: only its length, its beginning and its end, which is enough to tell which request it answers.

export type Line = { text: string } | { too_long_bytes: number; head: string; tail: string }

const newline = 0x0a
const edgeBytes = 256

export type LineSplitter = { push(chunk: Buffer): Line[]; readonly held_bytes: number }

export function createLineSplitter(max_bytes: number): LineSplitter {
  let parts: Buffer[] = []
  let length = 0
  let head: Buffer | undefined
  let tail = Buffer.alloc(0)

  function add(part: Buffer): void {
    length += part.length
    if (head) {
      tail = Buffer.from(Buffer.concat([tail, part.subarray(-edgeBytes)]).subarray(-edgeBytes))
      return
    }
    if (part.length > 0) parts.push(part)
    if (length <= max_bytes) return
    const all = Buffer.concat(parts)
    head = Buffer.from(all.subarray(0, edgeBytes))
    tail = Buffer.from(all.subarray(-edgeBytes))
    parts = []
  }

  function take(): Line {
    const line: Line = head
      ? { too_long_bytes: length, head: head.toString('utf8'), tail: tail.toString('utf8') }
      : { text: (parts.length === 1 ? parts[0]! : Buffer.concat(parts)).toString('utf8') }
    parts = []
    length = 0
    head = undefined
    return line
  }

  return {
    push(chunk) {
      const lines: Line[] = []
      let from = 0
      for (let at = chunk.indexOf(newline); at !== -1; at = chunk.indexOf(newline, from)) {
        add(chunk.subarray(from, at))
        lines.push(take())
        from = at + 1
      }
      if (from < chunk.length) add(from === 0 ? chunk : chunk.subarray(from))
      return lines
    },
    get held_bytes() {
      return length
    },
  }
}
