// Request bodies are held as a whole until they are answered. What all requests of one container hold together is bounded.
import { Fault } from '../fault.ts'

const containerBytes = 256 * 1024 * 1024

export type Hold = { add(bytes: number): void } & Disposable

export function createHolds(most = containerBytes): (project_id: string) => Hold {
  const held = new Map<string, number>()
  const change = (project_id: string, bytes: number) => {
    const now = (held.get(project_id) ?? 0) + bytes
    if (now > 0) held.set(project_id, now)
    else held.delete(project_id)
    return now
  }
  return (project_id) => {
    let mine = 0
    return {
      add(bytes) {
        mine += bytes
        if (change(project_id, bytes) > most)
          throw new Fault(
            'unavailable',
            `the requests of this container are larger than ${most / 1024 / 1024} MiB together`,
            { hint: 'wait for those that are under way', retry_after_seconds: 1 },
          )
      },
      [Symbol.dispose]: () => void change(project_id, -mine),
    }
  }
}
