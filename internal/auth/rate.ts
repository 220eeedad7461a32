// Token buckets in memory: one per key, refilled with time. A restart fills them; that is fine, they protect the
// server's health, not a quota.
export type Take = { ok: true } | { ok: false; retry_after_seconds: number }
export type Rate = {
  take(key: string): Take
}

const keepAtMost = 50_000

export function createRate(options: { per_second: number; burst: number; now?: () => number }): Rate {
  const { per_second, burst, now = () => performance.now() } = options
  const buckets = new Map<string, { left: number; at: number }>()

  function level(key: string): { left: number; at: number } {
    const at = now()
    const bucket = buckets.get(key)
    if (!bucket) return { left: burst, at }
    return { left: Math.min(burst, bucket.left + ((at - bucket.at) / 1000) * per_second), at }
  }

  const verdict = (left: number): Take =>
    left >= 1
      ? { ok: true }
      : { ok: false, retry_after_seconds: Math.max(1, Math.ceil((1 - left) / per_second)) }

  return {
    take(key) {
      const bucket = level(key)
      const taken = verdict(bucket.left)
      if (taken.ok) bucket.left -= 1
      // Re-inserting keeps the map in order of use, so that the coldest bucket is the one to go.
      buckets.delete(key)
      if (buckets.size >= keepAtMost) buckets.delete(buckets.keys().next().value!)
      buckets.set(key, bucket)
      return taken
    },
  }
}
