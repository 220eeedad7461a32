// A result that fits into a frame. Output is text of any kind, and JSON can make it six times as long, so the measure is
// taken from the JSON.
import type { ExecResult } from '../../../../internal/droid/command/exec.ts'
import { frameBytes } from '../../../../internal/protocol/frames.ts'

const resultBytes = frameBytes - 64 * 1024

export function fitFrame(result: ExecResult, room = resultBytes): ExecResult {
  let fitted = result
  while (Buffer.byteLength(JSON.stringify(fitted)) > room) {
    const longest = fitted.stdout.length >= fitted.stderr.length ? 'stdout' : 'stderr'
    const text = fitted[longest]
    fitted = {
      ...fitted,
      [longest]: text.slice(0, Math.floor(text.length * 0.75)).toWellFormed(),
      truncated: true,
    }
  }
  return fitted
}
