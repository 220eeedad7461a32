// Decides who answers an agent's permission request: the session's autonomy level, or a caller.
import type { Autonomy } from '../protocol/messages.ts'
import type { PermissionOutcome } from './droid.ts'

export type PermissionOption = { optionId: string; name: string; kind: string }

const reads = new Set(['read', 'search', 'think'])

/** A tool call without a kind may do anything. */
export function decide(autonomy: Autonomy, tool_kind: string | null | undefined): 'allow' | 'ask' {
  if (autonomy === 'high') return 'allow'
  if (autonomy === 'off') return 'ask'
  return reads.has(tool_kind ?? 'other') ? 'allow' : 'ask'
}

/** The agent's option for an outcome, the narrower one first; undefined if the agent does not offer it. */
export function optionFor(outcome: PermissionOutcome, options: PermissionOption[]): string | undefined {
  if (outcome.outcome === 'cancelled') return undefined
  if (outcome.outcome === 'selected')
    return options.find((option) => option.optionId === outcome.option_id)?.optionId
  const kinds =
    outcome.outcome === 'allow' ? ['allow_once', 'allow_always'] : ['reject_once', 'reject_always']
  for (const kind of kinds) {
    const found = options.find((option) => option.kind === kind)
    if (found) return found.optionId
  }
  return undefined
}
