// Limits how many calls run at the same time. Others wait in turns: one of each key after another, so that a key with many calls
// does not delay the others.
import { Fault } from '../fault.ts'

const maxWaiting = 1_024
const maxWaitingOfKey = 128

type Waiter = { start(): void }

export type FairQueue = {
  /** Resolves with the function that gives the place back. */
  enter(key: string, signal: AbortSignal): Promise<() => void>
  setLimit(limit: number): void
  readonly running: number
  readonly waiting: number
}

export function createFairQueue(limit: number, what: string): FairQueue {
  /** In the order of turns: a key that had its turn goes to the end. */
  const keys = new Map<string, Waiter[]>()
  let running = 0
  let waiting = 0

  function leaveOnce(): () => void {
    let left = false
    return () => {
      if (left) return
      left = true
      running--
      next()
    }
  }

  function next(): void {
    while (running < limit) {
      const turn = keys.entries().next().value
      if (!turn) return
      const [key, waiters] = turn
      keys.delete(key)
      const waiter = waiters.shift()!
      if (waiters.length > 0) keys.set(key, waiters)
      waiting--
      running++
      waiter.start()
    }
  }

  return {
    async enter(key, signal) {
      signal.throwIfAborted()
      if (running < limit && waiting === 0) {
        running++
        return leaveOnce()
      }
      const waiters = keys.get(key) ?? []
      if (waiting >= maxWaiting || waiters.length >= maxWaitingOfKey)
        throw new Fault('exhausted', `too many calls wait for ${what}`, {
          hint: 'try again when some have ended, or raise its concurrency',
          retry_after_seconds: 1,
        })
      const { promise, resolve, reject } = Promise.withResolvers<() => void>()
      const waiter: Waiter = {
        start: () => {
          signal.removeEventListener('abort', onAbort)
          resolve(leaveOnce())
        },
      }
      const onAbort = () => {
        const left = waiters.indexOf(waiter)
        if (left === -1) return
        waiters.splice(left, 1)
        if (waiters.length === 0) keys.delete(key)
        waiting--
        reject(signal.reason)
      }
      signal.addEventListener('abort', onAbort, { once: true })
      waiters.push(waiter)
      keys.set(key, waiters)
      waiting++
      return await promise
    },
    setLimit(next_limit) {
      limit = next_limit
      next()
    },
    get running() {
      return running
    },
    get waiting() {
      return waiting
    },
  }
}
