// What set-up shows on stderr while something takes long. On a terminal the newest detail stays on one line; elsewhere
// a detail is written now and then, so that a log shows life without drowning.
import { stripVTControlCharacters } from 'node:util'

export type Progress = {
  /** A new step begins. */
  step(text: string): void
  /** What it is doing at this moment. */
  detail(line: string): void
  /** Clears what is not final; to be called before anything else writes to the terminal. */
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
      // Of several, as a command's output is, the newest.
      const text = stripVTControlCharacters(line).trim().split('\n').at(-1)!
      if (text === '') return
      if (out.isTTY) {
        out.write(`${clear}  ${text.slice(0, (out.columns ?? 80) - 4)}`)
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
