// How fast the frames of one container are taken, over all its connections. Who has to wait waits in one line: a
// connection that sends a thousand at once is behind every other that sends one.
import type { Frame } from './frame-queue.ts'
import { turnIsOver } from './turn.ts'

/** Nothing: the frame may be taken now. Otherwise `go` is called when it may, and what comes back ends the waiting. */
export type Throttle = (frame: Frame, go: () => void) => (() => void) | undefined

/** `waitFor` says how many milliseconds a frame of this weight has to wait yet, or 0, which takes it. */
export function createThrottle(waitFor: (weight: number) => number): Throttle {
  const line = new Set<{ weight: number; go: () => void }>()
  let serving = false

  function serve(): void {
    for (const first of line) {
      if (turnIsOver()) return void setImmediate(serve)
      const wait = waitFor(first.weight)
      if (wait > 0) {
        setTimeout(serve, wait).unref()
        return
      }
      line.delete(first)
      first.go()
    }
    serving = false
  }

  return ({ weight }, go) => {
    if (line.size === 0 && waitFor(weight) === 0) return undefined
    const place = { weight, go }
    line.add(place)
    if (!serving) {
      serving = true
      setImmediate(serve)
    }
    return () => void line.delete(place)
  }
}
