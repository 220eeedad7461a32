// One line on a terminal that shows what a call is doing and for how long. It appears when the call takes longer than a second and
// is removed before anything else is written.
import { stripVTControlCharacters } from 'node:util'

type Terminal = { isTTY?: boolean; columns?: number; write(text: string): unknown }
export type LiveLine = { report(message: string): void; end(): void }

const every_ms = 1_000
const clear = '\r\x1b[2K'

/** Undefined if the output is not a terminal. */
export function createLiveLine(
  out: Terminal = process.stderr,
  now: () => number = () => performance.now(),
): LiveLine | undefined {
  if (!out.isTTY) return undefined
  const began = now()
  let message = ''
  let shown = false

  function draw(): void {
    const seconds = Math.floor((now() - began) / 1000)
    if (seconds < 1) return
    const time = ` · ${seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`}`
    // The last column stays free: some terminals wrap after it.
    const room = Math.max(10, (out.columns || 80) - time.length - 3)
    const text = message === '' ? 'waiting' : message
    out.write(`${clear}  ${text.length > room ? `${text.slice(0, room - 1)}…` : text}${time}`)
    shown = true
  }

  const timer = setInterval(draw, every_ms)
  timer.unref()
  return {
    /** An empty message shows that the call is alive, which the time does already. */
    report(given) {
      // The output of a command can contain several lines.
      const last = stripVTControlCharacters(given)
        .replaceAll('\t', ' ')
        .trim()
        .split(/[\r\n]+/)
        .at(-1)!
      if (last === '') return
      message = last
      draw()
    },
    end() {
      clearInterval(timer)
      if (shown) out.write(clear)
      shown = false
    },
  }
}
