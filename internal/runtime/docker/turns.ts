// What is done to one project is done one after the other; different projects do not wait for each other.

export type Turns = <T>(key: string, work: () => Promise<T>) => Promise<T>

export function createTurns(): Turns {
  const last = new Map<string, Promise<unknown>>()
  return (key, work) => {
    // The one before reports its failure to its own caller.
    const before = (last.get(key) ?? Promise.resolve()).catch(() => undefined)
    const mine = before.then(work)
    last.set(key, mine)
    const leave = () => {
      if (last.get(key) === mine) last.delete(key)
    }
    mine.then(leave, leave)
    return mine
  }
}
