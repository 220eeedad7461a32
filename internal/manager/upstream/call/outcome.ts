// What a droid or a caller is told about a call that has no result: errors it can act on, and the facts of a call of which
// nobody knows whether it took effect.
import { Fault, toFault } from '../../../fault.ts'
import type { UpstreamCallRow } from '../../../store/rows/upstream/calls.ts'

export type Facts = Pick<UpstreamCallRow, 'tool' | 'arguments_hash' | 'created_at' | 'sent_at'> & {
  server: string
}
export type ToolResult = Record<string, unknown>

/** A tool result, not an error of the protocol: the model reads it and decides. */
export function unknownOutcome(
  { server, tool, arguments_hash, created_at, sent_at }: Facts,
  reason: string,
): ToolResult {
  const message = `The outcome of ${tool} on MCP server "${server}" is unknown: the request was sent${
    sent_at ? ` at ${sent_at}` : ''
  }, and ${reason}. It may have taken effect. Check before you call it again.`
  return {
    content: [{ type: 'text', text: message }],
    structuredContent: {
      error: { kind: 'outcome_unknown', message, server, tool, arguments_hash, created_at, sent_at, reason },
    },
    isError: true,
  }
}

export const storedError = (error: unknown): Record<string, unknown> => {
  const { kind, message, hint } = toFault(error)
  return { kind, message, ...(hint ? { hint } : {}) }
}

/** The fault that ended an earlier call, for its repeat. */
export function restoredFault(error: unknown): Fault {
  const {
    kind = 'unavailable',
    message = 'the call failed',
    hint,
  } = (error ?? {}) as {
    kind?: Fault['kind']
    message?: string
    hint?: string
  }
  return new Fault(kind, message, hint ? { hint } : {})
}
