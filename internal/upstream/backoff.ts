// When to try again after failures. The first failures only delay the next attempt; after some in a row the circuit opens: requests
// fail at once until the time of the next attempt, which is shared by all who wait for it.

const firstMs = 250
const longestMs = 60_000
export const openAfterFailures = 3
/** A connection that lasted this long was a success, even if it was not used. */
export const stableMs = 10_000

export type Backoff = {
  readonly failures: number
  readonly retry_at: number | undefined
  readonly is_open: boolean
  wait_ms(): number
  failed(): void
  succeeded(): void
}

export function createBackoff(now: () => number = Date.now, random: () => number = Math.random): Backoff {
  let failures = 0
  let retry_at: number | undefined
  return {
    get failures() {
      return failures
    },
    get retry_at() {
      return retry_at
    },
    get is_open() {
      return failures >= openAfterFailures
    },
    wait_ms: () => (retry_at === undefined ? 0 : Math.max(0, retry_at - now())),
    failed() {
      failures++
      const ms = Math.min(longestMs, firstMs * 2 ** (failures - 1))
      // Upstreams that failed together are not tried again together.
      retry_at = now() + ms * (0.75 + random() * 0.5)
    },
    succeeded() {
      failures = 0
      retry_at = undefined
    },
  }
}
