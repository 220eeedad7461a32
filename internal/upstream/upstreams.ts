// All upstreams of this process. Each has an entry of its own: what one does, others do not notice.
import { Fault, unknown } from '../fault.ts'
import type { Log } from '../log.ts'
import { createEntry, type Entry } from './entry.ts'
import type { UpstreamStatus, Upstreams } from './upstream.ts'

export type UpstreamsDeps = {
  log: Log
  /** Of this program; upstreams are told. */
  version: string
}

type Listener = Parameters<Upstreams['subscribe']>[0]

export function createUpstreams({ log, version }: UpstreamsDeps): Upstreams {
  const entries = new Map<string, Entry>()
  const listeners = new Set<Listener>()
  let closed = false

  function entryOf(id: string): Entry {
    const entry = entries.get(id)
    if (!entry) throw unknown('upstream', id)
    return entry
  }

  function tell(id: string, status: UpstreamStatus, list_changed: boolean): void {
    for (const listener of listeners)
      try {
        listener({ id, status, list_changed })
      } catch (error) {
        log.error('failed to tell about an upstream', { upstream_id: id, error })
      }
  }

  return {
    configure(spec) {
      if (closed) throw new Fault('unavailable', 'the server is shutting down')
      const known = entries.get(spec.id)
      if (known) {
        void known.configure(spec)
        return
      }
      const entry: Entry = createEntry(spec, {
        version,
        log,
        changed: (list_changed) => {
          if (entries.get(spec.id) === entry) tell(spec.id, entry.status(), list_changed)
        },
      })
      entries.set(spec.id, entry)
    },
    async remove(id) {
      const entry = entries.get(id)
      entries.delete(id)
      await entry?.remove()
    },
    status: (id) => entryOf(id).status(),
    discover: async (id, signal) => await entryOf(id).discover(signal),
    call: async (id, request, options) => await entryOf(id).call(request, options),
    readResource: async (id, uri, options) => await entryOf(id).request('resources/read', { uri }, options),
    getPrompt: async (id, request, options) =>
      await entryOf(id).request('prompts/get', { ...request }, options),
    restart: async (id) => await entryOf(id).restart(),
    authorize: async (id) => await entryOf(id).authorize(),
    finishAuthorization: async (id, answer) => await entryOf(id).finishAuthorization(answer),
    subscribe(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    async close() {
      closed = true
      const all = [...entries.values()]
      entries.clear()
      await Promise.all(all.map((entry) => entry.remove()))
    },
  }
}
