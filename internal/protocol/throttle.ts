// Limits the rate of frames of one container over all its connections. Waiting connections share one queue with one frame each,
// so that a connection that sends a thousand frames does not delay one that sends a single frame.
import type { Frame } from './frame-queue.ts'
import { sliceIsOver } from './time-slice.ts'

/** Returns undefined if the frame may be processed now. Otherwise `go` is called later, and the returned function cancels the wait. */
export type Throttle = (frame: Frame, go: () => void) => (() => void) | undefined

/** `waitFor` returns the milliseconds that a frame of this weight has to wait; 0 accepts it. */
export function createThrottle(waitFor: (weight: number) => number): Throttle {
  const line = new Set<{ weight: number; go: () => void }>()
  let serving = false

  function serve(): void {
    for (const first of line) {
      if (sliceIsOver()) return void setImmediate(serve)
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
