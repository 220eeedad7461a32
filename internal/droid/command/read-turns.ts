// Whose output is read next. A child that prints without end always has more to read, and Node would read megabytes of it
// before it looks at the next one: a large piece waits until the others had theirs.

/** Passed on in one turn of the event loop, of all children together. */
const PIECES = 2
const waiting = new Set<() => void>()
let scheduled = false

function serve(): void {
  scheduled = false
  let left = PIECES
  for (const go of waiting) {
    if (left-- === 0) break
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

/** Settles when it is this reader's turn. */
export function nextReadTurn(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  waiting.add(resolve)
  schedule()
  return promise
}
