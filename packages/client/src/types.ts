// What the server returns, as far as the client names it. Unknown fields are kept, and more can be added.
import type { Json } from './call.ts'

export const finalStatuses = ['completed', 'failed', 'cancelled'] as const
export const sessionStatuses = [
  'queued',
  'preparing',
  'starting',
  'running',
  'idle',
  'waiting',
  ...finalStatuses,
] as const
export type FinalStatus = (typeof finalStatuses)[number]
export type SessionStatus = (typeof sessionStatuses)[number]
export const isFinal = (status: unknown): status is FinalStatus =>
  (finalStatuses as readonly unknown[]).includes(status)

export type Usage = { input_tokens: number; output_tokens: number; cost_usd: number }

/** Tokens and cost that were added between two states of a session. */
export const usageSince = (before: Usage, after: Usage): Usage => ({
  input_tokens: after.input_tokens - before.input_tokens,
  output_tokens: after.output_tokens - before.output_tokens,
  cost_usd: after.cost_usd - before.cost_usd,
})

/** The call of a caller tool that waits for an answer. */
export type OpenRequest = {
  request_id: string
  session_id: string
  caller_id: string
  tool: string
  arguments: Json
  deadline_at: string
}

/** A session, as `session get` returns it. */
export type SessionInfo = {
  session_id: string
  project_id: string
  workspace_id: string
  droid: string
  model: string | null
  status: SessionStatus
  reason: string | null
  /** Ids of all requests that a caller must answer. */
  requires: string[]
  open_requests: OpenRequest[]
  parent_session_id: string | null
  last_index: number
  turns: number
  final_text: string | null
  stop_reason: string | null
  usage: Usage
  created_at: string
  ended_at: string | null
}

/** The session that a prompt was sent to. The events of the turn have an index above `since_index`. */
export type SentPrompt = SessionInfo & { turn_id: string; since_index: number; spawned: boolean }

type EventOf<Type extends string, Fields = unknown> = {
  /** From 0, without gaps within a session. */
  index: number
  type: Type
  session_id: string
  at: string
  turn_id?: string
  [field: string]: unknown
} & Fields

export type SessionEvent =
  | EventOf<'status', { status: SessionStatus; reason?: string; step?: string; percent?: number | null }>
  | EventOf<'message', { role: string; text: string }>
  | EventOf<'delta', { text: string; role?: string; stream?: 'stdout' | 'stderr' }>
  | EventOf<'thought', { text: string }>
  | EventOf<'tool_call', { tool_call_id: string; title?: string; kind?: string; status?: string }>
  | EventOf<'tool_result', { tool_call_id: string; status?: string }>
  | EventOf<'plan', { entries: unknown[] }>
  | EventOf<'usage'>
  | EventOf<'permission_request', { request_id: string }>
  | EventOf<
      'caller_tool_request',
      { request_id: string; caller_id: string; tool: string; arguments: Json; deadline_at: string }
    >
  | EventOf<'caller_tool_result', { request_id: string }>
  | EventOf<
      'tool_approval_request',
      {
        approval_id: string
        kind: 'tool' | 'definition' | 'elicitation' | 'consent'
        server: string
        tool: string | null
        /** For display: clipped and escaped. */
        arguments?: Record<string, unknown>
        detail: Record<string, unknown>
        expires_at: string
      }
    >
  | EventOf<
      'tool_approval_decision',
      { approval_id: string; decision: 'allow' | 'deny'; decided_by: string | null; reason?: string }
    >
  | EventOf<'completion', { turn_id: string; final_text: string; stop_reason: string; exit_code?: number }>
  | EventOf<'error', { message: string }>
  | EventOf<'warning', { message: string }>
  | EventOf<'update'>

export type Attachment = { name: string; media_type?: string; encoding?: 'utf8' | 'base64'; data: string }

/** Fields of a new session; `docs/tools.md` of the server describes them. */
export type SpawnFields = {
  project_id: string
  workspace_id?: string
  create_workspace?: boolean
  /** Starts a new session instead of resuming the latest one of the workspace. Default: false. */
  new_session?: boolean
  droid?: string
  model?: string
  reasoning_level?: string
  autonomy_level?: 'off' | 'low' | 'medium' | 'high'
  tools_allowed?: string[]
  tools_disallowed?: string[]
  external_id?: string
  source?: string
  api_scope?: string
}
