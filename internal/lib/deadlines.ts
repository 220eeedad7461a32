// Deadlines on our side for whatever waits for another process: one that hangs keeps no deadline of its own. One timer
// looks at all of them, so that a request costs no timer.

const everyMs = 250
/** The timer was late by so much: the process was stopped, or its event loop was blocked. */
const stoppedMs = 1_000

type Waiting = { due: number; expire: () => void }

export function createDeadlines() {
  const waiting = new Set<Waiting>()
  let last = performance.now()

  const timer = setInterval(() => {
    const now = performance.now()
    const late = now - last - everyMs
    last = now
    for (const one of waiting)
      if (late > stoppedMs)
        // Answers may lie in the sockets unread: the time in which nobody could read them does not count.
        one.due += late
      else if (one.due <= now) one.expire()
  }, everyMs).unref()

  return {
    /**
     * Rejects with what `late` makes when the work has not settled in time; what becomes of it then is not told. If it
     * makes nothing, the work has the same time once more.
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
