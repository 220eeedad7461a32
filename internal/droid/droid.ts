// Driving one agent process inside a container: starting it, giving it turns, turning what it says into events, and
// making sure that nothing it started outlives it. Two kinds, `shell` and `acp`, behind one interface. It promises to
// stop reading from the agent while the sink has no room. Numbers, journals and the way to the server are left to
// whoever supervises.

export type DroidEvent = { type: string; [field: string]: unknown }

/** Where events go. `room` is undefined while there is room; else it settles when there is some again. */
export interface Sink {
  emit(event: DroidEvent): void
  /** A permission request that was emitted needs no answer any more. */
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
  /** The kernel ended what it ran for lack of memory. */
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
  /** A new process could take the conversation up. */
  resumable: boolean
}

export interface Droid {
  /** Settles when it can take turns; rejects with a fault that says why it cannot. */
  readonly ready: Promise<Ready>
  /** Settles when the agent is gone without having been asked to. */
  readonly gone: Promise<Gone>
  /** One at a time. Settles in every case: a turn that fails ends with a reason, it does not throw. */
  turn(turn: DroidTurn): Promise<TurnEnd>
  /** Stops the running turn; what does not stop by itself within the grace is killed. */
  cancel(grace_ms: number): Promise<void>
  /** False if nothing by this id waits. */
  answer(request_id: string, outcome: PermissionOutcome): boolean
  /** Everything it started is gone when this settles. */
  end(grace_ms: number): Promise<void>
}
