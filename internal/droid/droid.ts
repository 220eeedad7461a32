// Drives one agent process inside a container: starts it, runs its turns, converts its output to events, and ends every process
// it started. There are two kinds, `shell` and `acp`, behind one interface. Guarantee: the agent is not read while the sink has
// no room. Sequence numbers, journals and the connection to the server are left to the supervisor.

export type DroidEvent = { type: string; [field: string]: unknown }

/** Receives events. `room` is undefined while there is room; otherwise it settles when there is room again. */
export interface Sink {
  emit(event: DroidEvent): void
  /** An emitted permission request no longer needs an answer. */
  answered(request_id: string): void
  room(): Promise<void> | undefined
}

export type DroidTurn = {
  turn_id: string
  text: string
  /** Files that came with the prompt, already in the workspace. */
  files: { path: string; media_type: string | undefined }[]
}

export type TurnEnd = {
  stop_reason: string
  final_text: string
  exit_code?: number
  usage?: unknown
  error?: string
  /** The kernel killed a process for lack of memory. */
  out_of_memory?: string
}

export type PermissionOutcome =
  | { outcome: 'selected'; option_id: string }
  | { outcome: 'allow' | 'deny' | 'cancelled' }

export type Gone = { reason: string; exit_code: number | null; signal: string | null }

export type Ready = {
  agent_session_id: string | null
  resumed: boolean
  why_not_resumed?: string
  /** Whether a new process can resume the conversation. */
  resumable: boolean
}

export interface Droid {
  /** Settles when the droid accepts turns; rejects with the reason if it cannot start. */
  readonly ready: Promise<Ready>
  /** Settles when the agent exits unexpectedly. */
  readonly gone: Promise<Gone>
  /** One at a time. Never rejects: a failed turn ends with a reason. */
  turn(turn: DroidTurn): Promise<TurnEnd>
  /** Stops the running turn; kills what does not stop within the grace period. */
  cancel(grace_ms: number): Promise<void>
  /** False if there is no open request with this id. */
  answer(request_id: string, outcome: PermissionOutcome): boolean
  /** Settles when every process it started is gone. */
  end(grace_ms: number): Promise<void>
}
