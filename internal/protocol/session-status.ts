// The states of a session and the transitions between them: the one table for what stores, changes, sends and shows them.
//
//   queued ─▶ preparing ─▶ starting ─▶ running ⇄ idle ─▶ completed | failed | cancelled
//                                         ⇅
//                                      waiting
//
// `queued` is skipped while memory is available, `preparing` while the container is running. A preparing session has no droid
// and nothing of it was sent to its container: its image is built, its container started, its remote cloned. An idle session may be `hibernated`: its agent is not running, and the next
// message starts it again. A message to a completed or failed session starts it again, unless an end was requested.

/** Nothing of the session runs. SQL functions and triggers repeat this list; a test compares them. */
export const finalStatuses = ['completed', 'failed', 'cancelled'] as const
const liveStatuses = ['queued', 'preparing', 'starting', 'running', 'idle', 'waiting'] as const
export const sessionStatuses = [...liveStatuses, ...finalStatuses] as const

export type SessionStatus = (typeof sessionStatuses)[number]
export type FinalStatus = (typeof finalStatuses)[number]

/** Takes any string: what a container reports is not always a status. */
export const isFinal = (status: string): status is FinalStatus =>
  (finalStatuses as readonly string[]).includes(status)

export const isStatus = (status: unknown): status is SessionStatus =>
  (sessionStatuses as readonly unknown[]).includes(status)

/** Not ended, and without a droid in the container: the server alone decides what follows. */
export const isBeforeStart = (status: SessionStatus): boolean => status === 'queued' || status === 'preparing'

type Next = {
  /** Written by the server. */
  server: readonly SessionStatus[]
  /** Reported by the supervisor of the container. Only the server starts a session, so these are of a running droid. */
  container: readonly SessionStatus[]
}
const reported = ['running', 'idle', 'waiting', ...finalStatuses] as const
/** A droid that is gone although its session is not over is started again; the server may end a session at any time. */
const droid: Next = { server: ['queued', 'preparing', 'starting', ...finalStatuses], container: reported }
const ended: Next = { server: ['queued', 'preparing', 'starting'], container: [] }

/** What may follow each status. A status may also be reported again, with other details. */
const transitions: Record<SessionStatus, Next> = {
  // `idle`: its only turn was cancelled before it started.
  queued: { server: ['preparing', 'starting', 'idle', ...finalStatuses], container: [] },
  // `preparing`: the next step.
  preparing: { server: ['preparing', 'starting', 'idle', ...finalStatuses], container: [] },
  starting: droid,
  // Requests for caller tools that are opened and closed.
  running: { ...droid, server: [...droid.server, 'waiting'] },
  waiting: { ...droid, server: [...droid.server, 'running'] },
  // `idle`: it was hibernated.
  idle: { ...droid, server: [...droid.server, 'idle'] },
  completed: ended,
  failed: ended,
  cancelled: { server: [], container: [] },
}

export const mayFollow = (by: keyof Next, from: SessionStatus, to: SessionStatus): boolean =>
  transitions[from][by].includes(to)
