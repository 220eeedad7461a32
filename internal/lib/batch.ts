// Group commit: items that arrive during a commit are committed together by the next one, so that the cost per item falls as
// the load rises. An item that arrives while nothing is committed is committed at once.
export type Batch<T, R> = {
  /** Settles with the result of this item after its commit. */
  add(item: T): Promise<R>
  /** Items that no commit has taken yet. */
  readonly waiting: number
  /** Resolves when there is nothing left to commit; never rejects. */
  settled(): Promise<void>
}

export function createBatch<T, R>(options: {
  /** The results, in the order of the items. */
  commit: (items: T[]) => Promise<R[]>
  /** Items per commit. */
  most?: number
  /**
   * Whether to commit the items of a failed batch one by one, so that an item which is refused does not fail the others.
   * The failed commit may have had its effect: `commit` must be safe to repeat.
   */
  splits?: (error: unknown) => boolean
}): Batch<T, R> {
  const { commit, most = 200, splits = () => false } = options
  type Entry = { item: T; done: PromiseWithResolvers<R> }
  let waiting: Entry[] = []
  let running: Promise<void> | undefined

  async function write(entries: Entry[]): Promise<void> {
    try {
      const results = await commit(entries.map(({ item }) => item))
      for (const [at, { done }] of entries.entries()) done.resolve(results[at]!)
    } catch (error) {
      if (entries.length > 1 && splits(error)) for (const entry of entries) await write([entry])
      else for (const { done } of entries) done.reject(error)
    }
  }

  async function drain(): Promise<void> {
    while (waiting.length > 0) {
      const entries = waiting.slice(0, most)
      waiting = waiting.slice(most)
      await write(entries)
    }
    running = undefined
  }

  return {
    add(item) {
      const done = Promise.withResolvers<R>()
      waiting.push({ item, done })
      running ??= drain()
      return done.promise
    },
    get waiting() {
      return waiting.length
    },
    settled: async () => await running,
  }
}
