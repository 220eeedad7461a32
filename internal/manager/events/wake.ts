// Wakes waiters by key. A wake-up carries no data: the waiter reads the log, so that push and poll cannot disagree. A
// number per key closes the gap between reading and waiting.
export type Wake = {
  /** Call this before reading. */
  seen(key: string): number
  tell(keys: Iterable<string>): void
  /** Resolves when the key was woken after `seen`, after the timeout, or when the signal is aborted. */
  news(key: string, seen: number, options: { signal: AbortSignal; timeout_ms: number }): Promise<void>
}

export function createWake(): Wake {
  const counts = new Map<string, number>()
  const waiting = new Map<string, Set<() => void>>()
  let count = 0

  return {
    seen: (key) => counts.get(key) ?? 0,
    tell(keys) {
      count += 1
      for (const key of keys) {
        const set = waiting.get(key)
        counts.set(key, count)
        if (!set) continue
        waiting.delete(key)
        for (const go of set) go()
      }
      // Clearing is harmless: a waiter with an old number reads once more than needed.
      if (counts.size > 100_000) counts.clear()
    },
    news(key, seen, { signal, timeout_ms }) {
      if ((counts.get(key) ?? 0) !== seen || signal.aborted || timeout_ms <= 0) return Promise.resolve()
      const { promise, resolve } = Promise.withResolvers<void>()
      const set = waiting.get(key) ?? new Set()
      waiting.set(key, set.add(resolve))
      const timer = setTimeout(resolve, timeout_ms)
      const onAbort = () => resolve()
      signal.addEventListener('abort', onAbort)
      return promise.finally(() => {
        clearTimeout(timer)
        // A stream waits many times with the same signal.
        signal.removeEventListener('abort', onAbort)
        set.delete(resolve)
        if (set.size === 0 && waiting.get(key) === set) waiting.delete(key)
      })
    },
  }
}
