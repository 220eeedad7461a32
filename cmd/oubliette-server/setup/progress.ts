// Progress of long operations on stderr. On a terminal, the latest detail replaces the previous one on one line; otherwise
// at most one detail is written every ten seconds.
import { stripVTControlCharacters } from 'node:util'

export type Progress = {
  /** Starts a step. */
  step(text: string): void
  /** Shows what the step is doing. */
  detail(line: string): void
  /** Clears the detail line. Call it before anything else writes to the terminal. */
  end(): void
}

const quiet_ms = 10_000

export function createProgress(
  out: { isTTY?: boolean; columns?: number; write(text: string): unknown } = process.stderr,
  now: () => number = Date.now,
): Progress {
  let shown = now()
  const clear = out.isTTY ? '\r\x1b[2K' : ''
  return {
    step(text) {
      shown = now()
      out.write(`${clear}oubliette: ${text}\n`)
    },
    detail(line) {
      // The output of a command can contain several lines.
      const text = stripVTControlCharacters(line).trim().split('\n').at(-1)!
      if (text === '') return
      if (out.isTTY) {
        out.write(`${clear}  ${text.slice(0, (out.columns || 80) - 4)}`)
        return
      }
      if (now() - shown < quiet_ms) return
      shown = now()
      out.write(`  ${text.slice(0, 200)}\n`)
    },
    end() {
      out.write(clear)
    },
  }
}
