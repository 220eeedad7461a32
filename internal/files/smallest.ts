/** The `limit` smallest of any number of names, with memory for twice as many. */
export function createSmallest(limit: number) {
  let kept: string[] = []
  let dropped = false
  /** The largest kept name, once names were dropped. */
  let bound: string | undefined

  function trim(): void {
    kept.sort()
    if (kept.length <= limit) return
    kept.length = limit
    bound = kept.at(-1)
    dropped = true
  }

  return {
    add(name: string): void {
      if (bound !== undefined && name > bound) return
      kept.push(name)
      if (kept.length >= 2 * limit + 64) trim()
    },
    /** The names in order, and whether there were more. */
    take(): { names: string[]; more: boolean } {
      trim()
      const names = kept
      kept = []
      return { names, more: dropped }
    },
  }
}
