// Newline-delimited frames on a byte stream. The limit is kept while bytes arrive, not after a whole line was
// gathered, and bytes become text only as a whole frame, so a character cut by a chunk boundary stays whole.
import { isUtf8 } from 'node:buffer'
import { Fault } from '../fault.ts'

export const FRAME_BYTES = 8 * 1024 * 1024
const NEWLINE = 0x0a

export type FrameReader = {
  /** The complete frames that this chunk finishes. Throws `invalid` when the stream cannot be trusted any more. */
  push(chunk: Buffer): string[]
  /** Bytes of a frame that has begun and not ended. */
  readonly partial_bytes: number
  /** Forgets what has begun and not ended. */
  clear(): void
}

export function createFrameReader(limit = FRAME_BYTES): FrameReader {
  let parts: Buffer[] = []
  let held = 0

  const finish = (last: Buffer): string => {
    const whole = parts.length === 0 ? last : Buffer.concat([...parts, last])
    parts = []
    held = 0
    if (!isUtf8(whole)) throw new Fault('invalid', 'a frame is not UTF-8')
    return whole.toString('utf8')
  }

  return {
    push(chunk) {
      const frames: string[] = []
      let from = 0
      for (;;) {
        const end = chunk.indexOf(NEWLINE, from)
        const piece = chunk.subarray(from, end === -1 ? chunk.length : end)
        if (held + piece.length > limit)
          throw new Fault('invalid', `a frame is longer than ${limit} bytes`, {
            hint: 'send less at once',
          })
        if (end === -1) {
          if (piece.length > 0) {
            parts.push(piece)
            held += piece.length
          }
          return frames
        }
        const frame = finish(piece)
        if (frame.trim() !== '') frames.push(frame)
        from = end + 1
      }
    },
    get partial_bytes() {
      return held
    },
    clear() {
      parts = []
      held = 0
    },
  }
}
