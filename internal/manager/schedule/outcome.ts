// How a run ended, read from the events of its turn.
import type { RunStatus } from '../../store/schema.ts'

export type Ending = { status: RunStatus; output: string | null; error: string | null }
type Seen = { type: string; data: Record<string, unknown> }

/** The session itself has the whole final text. */
const outputAtMost = 100_000

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined

const clip = (output: string | undefined): string | null =>
  output?.slice(0, outputAtMost).toWellFormed() ?? null

function ofCompletion(data: Record<string, unknown>): Ending {
  const output = clip(text(data.final_text))
  const stop_reason = text(data.stop_reason) ?? 'end_turn'
  const error = text(data.error)
  if (stop_reason === 'cancelled') return { status: 'cancelled', output, error: 'the turn was cancelled' }
  if (stop_reason === 'not_run')
    return { status: 'cancelled', output, error: 'the session ended before the turn' }
  if (error) return { status: 'failed', output, error }
  if (typeof data.exit_code === 'number' && data.exit_code !== 0)
    return { status: 'failed', output, error: `exit code ${data.exit_code}` }
  if (stop_reason !== 'end_turn')
    return { status: 'failed', output, error: `the turn ended with ${stop_reason}` }
  return { status: 'success', output, error: null }
}

/** Undefined while the turn runs. */
export function endingOf(turn_id: string, { type, data }: Seen): Ending | undefined {
  if (type === 'completion' && data.turn_id === turn_id) return ofCompletion(data)
  if (type !== 'status') return undefined
  const why = text(data.reason)
  const because = why ? `: ${why}` : ''
  if (data.status === 'failed')
    return { status: 'failed', output: null, error: `the session failed${because}` }
  if (data.status === 'completed' || data.status === 'cancelled')
    return { status: 'cancelled', output: null, error: `the session was ended${because}` }
  return undefined
}
