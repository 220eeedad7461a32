// So many at a time; the others wait in line. Ten thousand runs that are due in one second must not take every
// connection to the database.
export type Slots = {
  <T>(work: () => Promise<T>): Promise<T>
  /** Settles when fewer than this many wait in line. */
  shorterThan(length: number): Promise<void>
}

export function createSlots(most: number): Slots {
  const line: (() => void)[] = []
  let waiting: { length: number; go: () => void }[] = []
  let taken = 0

  function leave(): void {
    const next = line.shift()
    if (next) next()
    else taken -= 1
    for (const one of waiting) if (line.length < one.length) one.go()
    waiting = waiting.filter((one) => line.length >= one.length)
  }

  async function slots<T>(work: () => Promise<T>): Promise<T> {
    if (taken < most) taken += 1
    else await new Promise<void>((resolve) => line.push(resolve))
    try {
      return await work()
    } finally {
      leave()
    }
  }

  return Object.assign(slots, {
    async shorterThan(length: number) {
      if (line.length >= length) await new Promise<void>((go) => waiting.push({ length, go }))
    },
  })
}
