// Requests of containers that crash or freeze the server. Containers send unanswered requests again, so such a request would
// end the server again and again. At each start, the requests that were being processed when the server ended are counted. A
// request with too many counts is refused; one that succeeds is removed.

import { inFlightFile, openInFlight, type Request, readLeft } from '../../event-loop/in-flight.ts'
import { Fault } from '../../fault.ts'
import { createThrottledWarn } from '../../lib/throttled-log.ts'
import type { Log } from '../../log.ts'
import type { Store } from '../../store/open.ts'
import { addEnds, allSuspects, deleteSuspects, deleteSuspectsBefore } from '../../store/rows/suspects.ts'

export const mostEnds = 3
const rememberDays = 7

/** Requests of one container do not count against another. */
const keyOf = ({ project_id, key }: Pick<Request, 'project_id' | 'key'>) => `${project_id} ${key}`

/** The request has ended the server too often. */
export class PoisonRefusal extends Fault {}

export type Poison = {
  /** Records that this turn of the event loop processes a request. Returns the fault if the request is refused. */
  begin(request: Request): PoisonRefusal | undefined
  /** It was being processed when the server ended: it is processed separately, to find out whether it was the cause. */
  isSuspect(project_id: string, key: string): boolean
  close(): void
}

export async function createPoison(deps: { home: string; store: Store; log: Log }): Promise<Poison> {
  const { store, log } = deps
  const suspects = new Map<string, number>()
  const warn = createThrottledWarn(log)
  const { requests, frozen } = readLeft(inFlightFile(deps.home))
  // A server that froze while it processed a single request froze because of it.
  const ends = frozen && requests.length === 1 ? mostEnds : 1
  await deleteSuspectsBefore(store.db, new Date(Date.now() - rememberDays * 86_400_000))
  const found = new Map(
    requests.map((request) => [keyOf(request), { ...request, key: keyOf(request), ends }]),
  )
  await addEnds(store.db, [...found.values()])
  for (const row of await allSuspects(store.db)) suspects.set(row.key, row.ends)
  for (const request of found.values())
    log.warn('the server ended while it processed a request', {
      ...request,
      frozen,
      ends: suspects.get(request.key),
    })

  // After counting: opening the file truncates it.
  const file = openInFlight(deps.home, done, (error) =>
    warn('in-flight', 'failed to record requests in progress', { error }),
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
          `${request.what} refused: the server ended each time it processed this request`,
          { hint: 'send less data or another request; the server log names this request' },
        )
      file.begin(request)
      return undefined
    },
    isSuspect: (project_id, key) => suspects.has(keyOf({ project_id, key })),
    close: () => file.close(),
  }
}
