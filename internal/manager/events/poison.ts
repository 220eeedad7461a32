// Requests of containers that end the server. Containers send again what was not answered, so a request that crashes or
// freezes the server would do so for ever. What the server was working on when it ended is counted at the next start; a
// request that was there too often is refused from then on, and one that once goes through is forgotten.

import { inFlightFile, openInFlight, type Request, readLeft } from '../../event-loop/in-flight.ts'
import { Fault } from '../../fault.ts'
import { createThrottledWarn } from '../../lib/throttled-log.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import { addEnds, allSuspects, deleteSuspects, deleteSuspectsBefore } from '../../store/rows/suspects.ts'

export const mostEnds = 3
const rememberDays = 7

/** What one container sends is not held against another. */
const keyOf = ({ project_id, key }: Pick<Request, 'project_id' | 'key'>) => `${project_id} ${key}`

/** The request ended the server too often. */
export class PoisonRefusal extends Fault {}

export type Poison = {
  /** Notes that work on a request begins in this turn of the event loop. The fault if it is not to be worked on. */
  begin(request: Request): PoisonRefusal | undefined
  /** It was there when the server ended: it is worked on by itself, so that it is known whether it was to blame. */
  isSuspect(project_id: string, key: string): boolean
  close(): void
}

export async function createPoison(deps: { home: string; store: Store; log: Log }): Promise<Poison> {
  const { store, log } = deps
  const suspects = new Map<string, number>()
  const warn = createThrottledWarn(log)
  const { requests, frozen } = readLeft(inFlightFile(deps.home))
  // What stood still with one request in hand did so because of it.
  const ends = frozen && requests.length === 1 ? mostEnds : 1
  await deleteSuspectsBefore(store.db, new Date(Date.now() - rememberDays * 86_400_000))
  const found = new Map(
    requests.map((request) => [keyOf(request), { ...request, key: keyOf(request), ends }]),
  )
  await addEnds(store.db, [...found.values()])
  for (const row of await allSuspects(store.db)) suspects.set(row.key, row.ends)
  for (const request of found.values())
    log.warn('the server ended while it worked on a request', {
      ...request,
      frozen,
      ends: suspects.get(request.key),
    })

  // Only now that it is counted: opening the file empties it.
  const file = openInFlight(deps.home, done, (error) =>
    warn('in-flight', 'failed to note what is being worked on', { error }),
  )

  function done(request: Request): void {
    const key = keyOf(request)
    const counted = suspects.get(key)
    if (counted === undefined || counted >= mostEnds) return
    suspects.delete(key)
    deleteSuspects(store.db, [key]).catch((error: unknown) =>
      log.warn('failed to delete a suspect request', { key, error }),
    )
  }

  return {
    begin(request) {
      const counted = suspects.get(keyOf(request)) ?? 0
      if (counted >= mostEnds)
        return new PoisonRefusal(
          'conflict',
          `${request.what} is refused: the server ended each time that it worked on this request`,
          { hint: 'send less, or something else; the log of the server names the request' },
        )
      file.begin(request)
      return undefined
    },
    isSuspect: (project_id, key) => suspects.has(keyOf({ project_id, key })),
    close: () => file.close(),
  }
}
