// How many requests of one container are under way at once; the others wait their turn, in order, without being read.
import { Fault } from '../fault.ts'

type Place = { taken: number; waiting: Set<() => void> }

export function createSlots(most: number, patience_ms: number) {
  const places = new Map<string, Place>()

  function release(project_id: string, place: Place): void {
    const [next] = place.waiting
    if (next) {
      place.waiting.delete(next)
      next()
      return
    }
    place.taken -= 1
    if (place.taken === 0) places.delete(project_id)
  }

  return async function take(project_id: string, signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted()
    const place = places.get(project_id) ?? { taken: 0, waiting: new Set() }
    places.set(project_id, place)
    const slot = { [Symbol.dispose]: () => release(project_id, place) }
    if (place.taken < most) {
      place.taken += 1
      return slot
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const late = () =>
      reject(
        new Fault('unavailable', `this container has ${most} git requests under way`, {
          hint: 'wait until they are over',
        }),
      )
    const timer = setTimeout(late, patience_ms)
    const onAbort = () => reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    place.waiting.add(resolve)
    try {
      await promise
      return slot
    } catch (error) {
      // A turn that was given in the same moment goes to the next.
      if (!place.waiting.delete(resolve)) release(project_id, place)
      throw error
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
    }
  }
}
