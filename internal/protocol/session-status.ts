// The states of a session, for the rooms that store, move, send and show them.
export const sessionStatuses = [
  'queued',
  'starting',
  'running',
  'idle',
  'waiting',
  'completed',
  'failed',
  'cancelled',
] as const

export type SessionStatus = (typeof sessionStatuses)[number]
