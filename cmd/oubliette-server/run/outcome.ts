// What the events of a session say to somebody who waits for one turn of it.
import { isFinal } from '../../../internal/protocol/session-status.ts'

export type RunEvent = { index: number; type: string; [field: string]: unknown }

export const isTurnOver = (event: RunEvent, turn_id: string): boolean =>
  (event.type === 'completion' && event.turn_id === turn_id) ||
  (event.type === 'status' && isFinal(String(event.status)))

/** Of the event that ended the turn. A script has an exit code of its own; an agent has a reason to stop. */
export function exitCodeOf(event: RunEvent | undefined): number {
  if (event?.type !== 'completion') return 1
  if (typeof event.exit_code === 'number') return event.exit_code
  return event.stop_reason === 'end_turn' ? 0 : 1
}
