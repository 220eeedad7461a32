// How long the frames of all containers together are worked on before the event loop turns: whoever else waits, over HTTP
// for one, waits no longer than this and one frame. Connections that have more frames than fit take turns, frame by frame.
// There is one event loop, so there is one of this.
const turnMs = 5
let began: number | undefined
const waiting = new Set<() => void>()
let scheduled = false

export function turnIsOver(): boolean {
  if (began !== undefined) return performance.now() - began > turnMs
  began = performance.now()
  setImmediate(() => {
    began = undefined
  })
  return false
}

/** Somebody else is before a connection that has another frame. */
export const mustWait = (): boolean => waiting.size > 0 || turnIsOver()

function serve(): void {
  scheduled = false
  for (const go of waiting) {
    if (turnIsOver()) break
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

/** `go` may take one frame when it is called. The function that is returned ends the waiting. */
export function waitForTurn(go: () => void): () => void {
  const place = () => go()
  waiting.add(place)
  schedule()
  return () => void waiting.delete(place)
}
