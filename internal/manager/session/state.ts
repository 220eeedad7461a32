// How events change the row of their session, as a pure function. The states and their transitions are in
// `internal/protocol/session-status.ts`; SQL functions that change a status do the same to the row (tested in
// test/integration/session/status.test.ts).

import { isFinal, isStatus, type SessionStatus } from '../../protocol/session-status.ts'
import type { NewEvent } from '../../store/rows/session/events.ts'
import type { SessionChange, SessionRow } from '../../store/rows/session/sessions.ts'
import type { UsageRow } from '../../store/rows/usage.ts'

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
/** Rows are listed in pages; the event has the full text. */
const mostText = 100_000
const mostReason = 2_000
const mostRequired = 100
const mostStep = 200
const clipped = (value: unknown, most: number): string | null =>
  text(value)?.slice(0, most).toWellFormed() ?? null

/** A container may report any number, and the sum of all must fit into its column. */
const mostCounted = 1e12
const count = (value: unknown): number =>
  typeof value === 'number' && value > 0 && Number.isFinite(value) ? Math.min(value, mostCounted) : 0
const record = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

type Counted = { input_tokens: number; output_tokens: number; cost_usd: number }
const noTokens = { inputTokens: 0, outputTokens: 0 }
const nothing: Counted = { input_tokens: 0, output_tokens: 0, cost_usd: 0 }
const mostModel = 200

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

/** What an event adds to the totals of its session, of which `spent_usd` is the cost so far. */
function added({ type, data }: NewEvent, spent_usd: number): Counted | undefined {
  // The model proxy reports the usage of each request.
  if (type === 'usage' && data.source === 'gateway') return usageOf(data)
  // An agent reports its total cost so far, and the tokens of the turn. Metered: the model proxy has already counted it.
  if (data.metered || (type !== 'usage' && type !== 'completion')) return undefined
  const { cost_usd, ...tokens } = usageOf(type === 'usage' ? { ...data, ...noTokens } : data.usage)
  return { ...tokens, cost_usd: Math.max(0, cost_usd - spent_usd) }
}

/** The usage that these events add to the session, by model. The hour is that of the server: a container may report any time. */
export function usageIn(row: SessionRow, events: NewEvent[], now = new Date()): UsageRow[] {
  const found = new Map<string, UsageRow>()
  const hour = `${now.toISOString().slice(0, 13)}:00:00.000Z`
  let spent_usd = row.cost_usd
  for (const event of events) {
    const counted = added(event, spent_usd)
    if (!counted || (counted.input_tokens === 0 && counted.output_tokens === 0 && counted.cost_usd === 0))
      continue
    spent_usd += counted.cost_usd
    const { data } = event
    const asked = data.source === 'gateway' ? text(data.model) : undefined
    const model = (asked ?? row.model ?? '').slice(0, mostModel).toWellFormed()
    const { id: session_id, project_id, token_id } = row
    const before = found.get(model) ?? { hour, project_id, session_id, model, token_id, ...nothing }
    found.set(model, {
      ...before,
      input_tokens: before.input_tokens + counted.input_tokens,
      output_tokens: before.output_tokens + counted.output_tokens,
      cost_usd: before.cost_usd + counted.cost_usd,
    })
  }
  return [...found.values()]
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
  for (const event of events) {
    const { type, at, data } = event
    if (type === 'status') change = { ...change, ...onStatus(data, at) }
    const counted = added(event, sums.cost_usd) ?? nothing
    sums.input_tokens += counted.input_tokens
    sums.output_tokens += counted.output_tokens
    sums.cost_usd += counted.cost_usd
    if (type === 'completion') {
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
