// The time-out of one call: extended by progress, and stopped while the upstream waits for input.

export type Deadline = {
  signal: AbortSignal
  /** Begins again, at most up to the longest duration of a call. */
  extend(): void
  /** Stops until the returned function is called. */
  suspend(): () => void
  clear(): void
  readonly expired: boolean
}

/** An upstream that reports progress for ever does not keep its place for ever. */
const longestMs = 60 * 60 * 1000

export function createDeadline(timeout_ms: number): Deadline {
  const controller = new AbortController()
  let over = performance.now() + Math.max(longestMs, timeout_ms)
  let due = 0
  let timer: NodeJS.Timeout | undefined
  let suspended = 0
  let expired = false

  function arm(ms: number): void {
    clearTimeout(timer)
    due = Math.min(performance.now() + ms, over)
    timer = setTimeout(
      () => {
        expired = true
        controller.abort(new Error('timed out'))
      },
      Math.max(0, due - performance.now()),
    )
  }
  arm(timeout_ms)

  return {
    signal: controller.signal,
    extend: () => {
      if (suspended === 0 && !expired) arm(timeout_ms)
    },
    suspend() {
      suspended++
      clearTimeout(timer)
      const from = performance.now()
      const left = due - from
      let resumed = false
      return () => {
        if (resumed) return
        resumed = true
        suspended--
        if (suspended > 0 || expired) return
        over += performance.now() - from
        arm(left)
      }
    },
    clear: () => clearTimeout(timer),
    get expired() {
      return expired
    },
  }
}
