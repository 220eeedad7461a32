import { Fault } from '../fault.ts'

/** One at a time for each key; so many may wait, and whoever comes after them is refused. */
export function createLane({ waiting: most }: { waiting: number }) {
  const lanes = new Map<string, (() => void)[]>()

  return async (key: string): Promise<() => void> => {
    const queue = lanes.get(key)
    if (!queue) lanes.set(key, [])
    else if (queue.length >= most)
      throw new Fault('exhausted', `${most} listings of large directories are waiting in this workspace`, {
        hint: 'try again when they are done',
      })
    else await new Promise<void>((resolve) => queue.push(resolve))
    return () => {
      const next = lanes.get(key)!.shift()
      if (next) next()
      else lanes.delete(key)
    }
  }
}
