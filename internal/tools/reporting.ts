// Progress of calls that take longer than two seconds: what they do, and otherwise a heartbeat. Clients give up on calls
// without progress.
import type { CallContext } from './tool.ts'

const firstMs = 2_000
const everyMs = 5_000

/** The progress is the time in seconds, because it must increase with every report. */
export function reporting(progress: CallContext['progress']) {
  const began = performance.now()
  let last = 0
  const tell = (message?: string) => {
    last = Math.max(last + 0.001, Math.round(performance.now() - began) / 1000)
    progress({ progress: last, ...(message === undefined ? {} : { message }) })
  }
  let timer = setTimeout(beat, firstMs)
  function beat(): void {
    tell()
    timer = setTimeout(beat, everyMs)
  }
  return { tell, [Symbol.dispose]: () => clearTimeout(timer) }
}
