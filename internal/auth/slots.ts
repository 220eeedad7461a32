// Slots for what callers keep open, limited per caller and in total. One caller can never take all of them.
import { Fault } from '../fault.ts'
import type { Caller } from './caller.ts'

export interface Slots {
  /** Throws `exhausted`. Returns a function that frees the slot; calling it twice is harmless. */
  take(caller: Pick<Caller, 'kind' | 'id' | 'token_id'>): () => void
}

const retry_after_seconds = 10

export function createSlots(options: {
  what: string
  per_caller: number
  in_all: number
  setting: string
}): Slots {
  const { what, per_caller, in_all, setting } = options
  const held = new Map<string, number>()
  let all = 0

  const refuse = (whose: string, most: number, hint: string) =>
    new Fault('exhausted', `${whose} has ${most} open ${what}, which is the limit (${setting})`, {
      hint,
      retry_after_seconds,
    })

  return {
    take({ kind, id, token_id }) {
      const key = token_id ?? `${kind}:${id}`
      const own = held.get(key) ?? 0
      if (own >= per_caller) throw refuse('this token', per_caller, 'close one before you open another')
      if (all >= in_all) throw refuse('this server', in_all, `try again in ${retry_after_seconds} s`)
      held.set(key, own + 1)
      all += 1
      let open = true
      return () => {
        if (!open) return
        open = false
        all -= 1
        const left = held.get(key)! - 1
        if (left > 0) held.set(key, left)
        else held.delete(key)
      }
    },
  }
}
