// Writes that come while one commit is under way are committed together by the next: the busier it is, the fewer commits
// each write costs.
export function createBatch<T, R>(commit: (items: T[]) => Promise<R[]>, most = 200): (item: T) => Promise<R> {
  let waiting: { item: T; done: PromiseWithResolvers<R> }[] = []
  let running = false

  async function drain(): Promise<void> {
    running = true
    while (waiting.length > 0) {
      const some = waiting.slice(0, most)
      waiting = waiting.slice(most)
      try {
        const results = await commit(some.map(({ item }) => item))
        for (const [at, { done }] of some.entries()) done.resolve(results[at]!)
      } catch (error) {
        for (const { done } of some) done.reject(error)
      }
    }
    running = false
  }

  return (item) => {
    const done = Promise.withResolvers<R>()
    waiting.push({ item, done })
    if (!running) void drain()
    return done.promise
  }
}
