// The shape of the one door. HTTP, the socket, schedules and the command line all come in here; `door.ts` is what
// stands behind it. Protocol code (`internal/mcp`) knows this shape and nothing of what a tool does.
import type { Caller } from '../auth/caller.ts'
import type { Scope } from '../auth/scope.ts'

export type CallContext = {
  caller: Caller
  request_id: string
  via: 'http' | 'socket' | 'schedule'
  /** Aborted when the caller cancels or goes away. */
  signal: AbortSignal
  progress(update: { progress: number; total?: number; message?: string }): void
}

type JsonSchema = { type: 'object'; [key: string]: unknown }

/** As `tools/list` shows it. */
export type ListedTool = {
  name: string
  title?: string
  description: string
  inputSchema: JsonSchema
  outputSchema: JsonSchema
  annotations: {
    readOnlyHint: boolean
    destructiveHint: boolean
    idempotentHint: boolean
    openWorldHint: boolean
  }
}

/** `structured` is `{error: FaultShape}` when `is_error`; `text` is a readable sentence then, else the same JSON. */
export type Outcome = { structured: Record<string, unknown>; text: string; is_error: boolean }

export interface Door {
  /** What this scope could ever use; the same array for the same kind of scope, so that it can be prepared once. */
  listing(scope: Scope): readonly ListedTool[]
  /** Never throws: a fault is an outcome. */
  call(tool: string, context: CallContext, args: unknown): Promise<Outcome>
}
