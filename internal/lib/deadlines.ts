// Deadlines for requests to another process, which may hang. One timer checks all of them, so that a request does not need a
// timer of its own.

const checkMs = 250
/** A timer delay from which on the process was suspended or its event loop was blocked. */
const stallMs = 1_000

type Waiting = { due: number; expire: () => void }

export function createDeadlines() {
  const waiting = new Set<Waiting>()
  let last = performance.now()

  const timer = setInterval(() => {
    const now = performance.now()
    const late = now - last - checkMs
    last = now
    for (const one of waiting)
      if (late > stallMs)
        // Answers may be unread in the sockets: time in which they could not be read does not count.
        one.due += late
      else if (one.due <= now) one.expire()
  }, checkMs).unref()

  return {
    /**
     * Rejects with the error that `late` returns when the work has not settled in time; its later outcome is ignored. If
     * `late` returns undefined, the deadline is extended by the same time.
     */
    within<T>(work: Promise<T>, ms: number, late: () => Error | undefined): Promise<T> {
      return new Promise((resolve, reject) => {
        const expire = () => {
          const error = late()
          if (!error) {
            one.due += ms
            return
          }
          waiting.delete(one)
          reject(error)
        }
        const one: Waiting = { due: performance.now() + ms, expire }
        waiting.add(one)
        work.then(
          (value) => {
            waiting.delete(one)
            resolve(value)
          },
          (error: unknown) => {
            waiting.delete(one)
            reject(error)
          },
        )
      })
    },
    close: () => clearInterval(timer),
  }
}
export type Deadlines = ReturnType<typeof createDeadlines>
