// Token buckets in memory, one per key, refilled with time. A restart fills them, which is acceptable: they protect the
// server from load, and are not a quota.
import { LRUCache } from 'lru-cache'

export type Take = { ok: true } | { ok: false; retry_after_seconds: number }
export type Rate = {
  /** A cost above the burst is allowed when the bucket is full. */
  take(key: string, cost?: number): Take
}

const keepAtMost = 50_000

export function createRate(options: { per_second: number; burst: number; now?: () => number }): Rate {
  const { per_second, burst, now = () => performance.now() } = options
  const buckets = new LRUCache<string, { left: number; at: number }>({ max: keepAtMost })

  function level(key: string): { left: number; at: number } {
    const at = now()
    const bucket = buckets.get(key)
    if (!bucket) return { left: burst, at }
    return { left: Math.min(burst, bucket.left + ((at - bucket.at) / 1000) * per_second), at }
  }

  return {
    take(key, cost = 1) {
      const bucket = level(key)
      const missing = Math.min(cost, burst) - bucket.left
      if (missing <= 0) bucket.left -= cost
      buckets.set(key, bucket)
      return missing <= 0 ? { ok: true } : { ok: false, retry_after_seconds: missing / per_second }
    },
  }
}
