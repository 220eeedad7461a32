// Limits how long frames of all containers together are processed in one iteration of the event loop, so that other work, such
// as HTTP requests, waits no longer than this and one frame. Connections with more frames than fit alternate, frame by frame.
// The state is global because there is one event loop.
const sliceMs = 5
let began: number | undefined
const waiting = new Set<() => void>()
let scheduled = false

export function sliceIsOver(): boolean {
  if (began !== undefined) return performance.now() - began > sliceMs
  began = performance.now()
  setImmediate(() => {
    began = undefined
  })
  return false
}

/** Whether a connection with another frame has to wait for others. */
export const mustYield = (): boolean => waiting.size > 0 || sliceIsOver()

function serve(): void {
  scheduled = false
  for (const go of waiting) {
    if (sliceIsOver()) break
    waiting.delete(go)
    go()
  }
  schedule()
}

function schedule(): void {
  if (scheduled || waiting.size === 0) return
  scheduled = true
  setImmediate(serve)
}

/** `go` may process one frame when it is called. The returned function cancels the wait. */
export function waitForSlice(go: () => void): () => void {
  const place = () => go()
  waiting.add(place)
  schedule()
  return () => void waiting.delete(place)
}
