// Limits the concurrent requests of one container; others wait in order, without being read.
import { Fault } from '../fault.ts'

type Place = { taken: number; waiting: Set<() => void> }

export function createSlots(max: number, wait_ms: number) {
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
    if (place.taken < max) {
      place.taken += 1
      return slot
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const late = () =>
      reject(
        new Fault('unavailable', `this container already has ${max} open git requests`, {
          hint: 'wait until they have ended',
        }),
      )
    const timer = setTimeout(late, wait_ms)
    const onAbort = () => reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    place.waiting.add(resolve)
    try {
      await promise
      return slot
    } catch (error) {
      // A slot that was granted at the same moment goes to the next request.
      if (!place.waiting.delete(resolve)) release(project_id, place)
      throw error
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', onAbort)
    }
  }
}
