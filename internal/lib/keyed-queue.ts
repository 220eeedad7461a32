// One thing at a time for each key. Two starts and a delete of one project do not cross; other projects do not wait.
export type KeyedQueue = {
  <T>(key: string, work: (signal: AbortSignal) => Promise<T>): Promise<T>
  /** Whether something has the turn, or waits for it. */
  busy(key: string): boolean
  /** Asks whoever has the turn to give up; what waits keeps its place. */
  interrupt(key: string, reason: Error): void
  /** Resolves when all work that is queued now has ended. */
  settled(): Promise<void>
}

export function createKeyedQueue(): KeyedQueue {
  const tails = new Map<string, Promise<unknown>>()
  const turns = new Map<string, AbortController>()

  async function serial<T>(key: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const before = tails.get(key)
    const mine = (async () => {
      // The one before has told its own caller how it ended.
      await before?.catch(() => undefined)
      const turn = new AbortController()
      turns.set(key, turn)
      try {
        return await work(turn.signal)
      } finally {
        turns.delete(key)
      }
    })()
    tails.set(key, mine)
    try {
      return await mine
    } finally {
      if (tails.get(key) === mine) tails.delete(key)
    }
  }

  return Object.assign(serial, {
    busy: (key: string) => tails.has(key),
    interrupt: (key: string, reason: Error) => turns.get(key)?.abort(reason),
    settled: async () => void (await Promise.allSettled(tails.values())),
  })
}
