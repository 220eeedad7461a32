// Retries of what is safe to repeat, while the server restarts.
import { isTransient, type OublietteError } from './error.ts'

export type Retry = { error: OublietteError; attempt: number; wait_seconds: number }
export type RetryOptions = {
  /** Whether the server has responded before: a first contact is not retried. */
  reached(): boolean
  reconnect_seconds: number
  onRetry(retry: Retry): void
}

export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, ms)
    if (signal?.aborted) onAbort()
    else signal?.addEventListener('abort', onAbort, { once: true })
  })
}

/** The attempts of one operation. `failed` waits before the next one, or throws what cannot be retried. */
export function attempts({ reached, reconnect_seconds, onRetry }: RetryOptions, signal?: AbortSignal) {
  let attempt = 0
  let failing_since: number | undefined
  return {
    succeeded() {
      attempt = 0
      failing_since = undefined
    },
    async failed(error: unknown): Promise<void> {
      signal?.throwIfAborted()
      if (!isTransient(error) || !reached()) throw error
      failing_since ??= performance.now()
      const wait_ms = Math.max(Math.min(2000, 50 * 2 ** attempt), (error.retry_after_seconds ?? 0) * 1000)
      if (performance.now() + wait_ms - failing_since > reconnect_seconds * 1000) throw error
      attempt += 1
      onRetry({ error, attempt, wait_seconds: wait_ms / 1000 })
      await pause(wait_ms, signal)
    },
  }
}

export async function withRetry<T>(
  options: RetryOptions,
  signal: AbortSignal | undefined,
  run: () => Promise<T>,
): Promise<T> {
  const tries = attempts(options, signal)
  for (;;) {
    try {
      return await run()
    } catch (error) {
      await tries.failed(error)
    }
  }
}
