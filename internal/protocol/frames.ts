// Newline-delimited frames on a byte stream. The limit is kept while bytes arrive, not after a whole line was
// gathered, and bytes become text only as a whole frame, so a character cut by a chunk boundary stays whole.
import { isUtf8 } from 'node:buffer'
import { Fault } from '../fault.ts'

export const frameBytes = 8 * 1024 * 1024
const newline = 0x0a
const nothing = Buffer.alloc(0)

export type FrameReader = {
  /** The complete frames that this chunk finishes. Throws `invalid` when the stream cannot be trusted any more. */
  push(chunk: Buffer): string[]
  /** Bytes of a frame that has begun and not ended. */
  readonly partial_bytes: number
  /** Forgets what has begun and not ended. */
  clear(): void
}

export function createFrameReader(limit = frameBytes): FrameReader {
  // One buffer that grows by doubling: one that sends byte by byte must not have us keep an object for each.
  let partial = nothing
  let held = 0

  const keep = (piece: Buffer): void => {
    if (held + piece.length > partial.length) {
      const larger = Buffer.allocUnsafe(Math.max(held + piece.length, 2 * partial.length))
      partial.copy(larger, 0, 0, held)
      partial = larger
    }
    piece.copy(partial, held)
    held += piece.length
  }
  const clear = (): void => {
    partial = nothing
    held = 0
  }
  const finish = (last: Buffer): string => {
    if (held > 0) keep(last)
    const whole = held > 0 ? partial.subarray(0, held) : last
    clear()
    if (!isUtf8(whole)) throw new Fault('invalid', 'a frame is not UTF-8')
    return whole.toString('utf8')
  }

  return {
    push(chunk) {
      const frames: string[] = []
      let from = 0
      for (;;) {
        const end = chunk.indexOf(newline, from)
        const piece = chunk.subarray(from, end === -1 ? chunk.length : end)
        if (held + piece.length > limit)
          throw new Fault('invalid', `a frame is longer than ${limit} bytes`, {
            hint: 'send less at once',
          })
        if (end === -1) {
          if (piece.length > 0) keep(piece)
          return frames
        }
        if (held + piece.length === 0) throw new Fault('invalid', 'a frame is empty')
        frames.push(finish(piece))
        from = end + 1
      }
    },
    get partial_bytes() {
      return held
    },
    clear,
  }
}
