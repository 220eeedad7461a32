// How events change the row of their session, as a pure function. The states and their transitions are in
// `internal/protocol/session-status.ts`; SQL functions that change a status do the same to the row (tested in
// test/integration/session/status.test.ts).

import { isFinal, isStatus, type SessionStatus } from '../../protocol/session-status.ts'
import type { NewEvent } from '../../store/rows/session/events.ts'
import type { SessionChange, SessionRow } from '../../store/rows/session/sessions.ts'

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
/** Rows are listed in pages; the event has the full text. */
const mostText = 100_000
const mostReason = 2_000
const mostRequired = 100
const mostStep = 200
const clipped = (value: unknown, most: number): string | null =>
  text(value)?.slice(0, most).toWellFormed() ?? null

const count = (value: unknown): number =>
  typeof value === 'number' && value > 0 && Number.isFinite(value) ? value : 0
const record = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

type Counted = { input_tokens: number; output_tokens: number; cost_usd: number }

/** Clients of earlier releases, which may still run in containers, pass on the names that agents use. */
function usageOf(given: unknown): Counted {
  const usage = record(given)
  const cost = record(usage.cost)
  return {
    input_tokens: Math.round(count(usage.inputTokens ?? usage.input_tokens)),
    output_tokens: Math.round(count(usage.outputTokens ?? usage.output_tokens)),
    cost_usd: count(cost.amount ?? usage.cost_usd),
  }
}

function onStatus(data: Record<string, unknown>, at: string): SessionChange {
  const { status } = data
  if (!isStatus(status)) return {}
  return {
    status,
    reason: clipped(data.reason, mostReason),
    requires: JSON.stringify(
      status === 'waiting' && Array.isArray(data.requires) ? data.requires.slice(0, mostRequired) : [],
    ),
    step: status === 'preparing' ? clipped(data.step, mostStep) : null,
    percent: status === 'preparing' && typeof data.percent === 'number' ? Math.round(data.percent) : null,
    idle_at: status === 'idle' ? at : null,
    ended_at: isFinal(status) ? at : null,
    // Only the server sets it, in addition to the event.
    hibernated: false,
    ...(text(data.agent_session_id)
      ? { agent_session_id: text(data.agent_session_id), resumable: data.resumable === true }
      : {}),
  }
}

/**
 * The status of a session when a question to somebody outside was opened or closed: a call of a caller tool, or of the approval
 * inbox. One that waits for permission requests of its agent (`requires`) continues when its agent reports so.
 */
export const statusWith = (
  { status, requires }: Pick<SessionRow, 'status' | 'requires'>,
  has_open_question: boolean,
): SessionStatus => {
  if (status !== 'running' && !(status === 'waiting' && requires.length === 0)) return status
  return has_open_question ? 'waiting' : 'running'
}

export function fold(row: SessionRow, events: NewEvent[]): SessionChange {
  let change: SessionChange = {}
  const sums = { input_tokens: row.input_tokens, output_tokens: row.output_tokens, cost_usd: row.cost_usd }
  let turns = row.turns
  for (const { type, at, data } of events) {
    if (type === 'status') change = { ...change, ...onStatus(data, at) }
    // The model proxy reports the usage of each request.
    if (type === 'usage' && data.source === 'gateway') {
      const usage = usageOf(data)
      sums.input_tokens += usage.input_tokens
      sums.output_tokens += usage.output_tokens
      sums.cost_usd += usage.cost_usd
      // An agent reports its total cost so far, and the tokens of the turn.
    } else if (type === 'usage' && !data.metered)
      sums.cost_usd = Math.max(sums.cost_usd, usageOf(data).cost_usd)
    if (type === 'completion') {
      // Metered: the model proxy has already counted it.
      const usage = usageOf(data.metered ? {} : data.usage)
      sums.input_tokens += usage.input_tokens
      sums.output_tokens += usage.output_tokens
      sums.cost_usd = Math.max(sums.cost_usd, usage.cost_usd)
      turns += 1
      change = {
        ...change,
        final_text: clipped(data.final_text, mostText),
        stop_reason: clipped(data.stop_reason, mostReason),
      }
    }
  }
  if (turns !== row.turns) change = { ...change, turns }
  if (
    sums.cost_usd !== row.cost_usd ||
    sums.input_tokens !== row.input_tokens ||
    sums.output_tokens !== row.output_tokens
  )
    change = { ...change, ...sums }
  return change
}
