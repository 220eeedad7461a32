// The SDK's change events for `subscriptions/listen`, with an audience: each subscription remembers who opened it.
// The SDK does not pass the caller to `subscribe`, so it is carried in an AsyncLocalStorage.
import { AsyncLocalStorage } from 'node:async_hooks'
import type { ServerEvent, ServerEventBus } from '@modelcontextprotocol/server'
import type { Caller } from '../auth/caller.ts'
import type { Log } from '../log.ts'
import type { Audience } from './notify.ts'

export interface EventBus extends ServerEventBus {
  publish(event: ServerEvent, to?: Audience): void
  /** Subscriptions that are made during `run` belong to this caller. */
  subscribeAs<T>(caller: Caller, run: () => T): T
}

export function createEventBus(log: Log): EventBus {
  const current = new AsyncLocalStorage<Caller>()
  const listeners = new Map<(event: ServerEvent) => void, Caller | undefined>()
  return {
    subscribeAs: (caller, run) => current.run(caller, run),
    subscribe(listener) {
      listeners.set(listener, current.getStore())
      return () => listeners.delete(listener)
    },
    publish(event, to) {
      for (const [listener, caller] of listeners) {
        if (to && !(caller && to(caller))) continue
        try {
          listener(event)
        } catch (error) {
          log.warn('failed to deliver an event to a subscription', { error })
        }
      }
    },
  }
}
