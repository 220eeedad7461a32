// What must be asked before it happens, and the answers: one inbox for permission requests of agents, tool calls that the
// policy wants asked, changed definitions of upstream tools, questions of upstream servers, and OAuth consents. A question
// is a row from the moment it is asked until its session is deleted: it survives crashes of server, client and caller. The
// first decision is final. `policy.ts` decides what is asked; this room does not know upstreams.
import { Fault } from '../../fault.ts'
import type { Autonomy } from '../../protocol/messages.ts'
import type { Db } from '../../store/open.ts'

export const approvalKinds = ['permission', 'tool', 'definition', 'elicitation', 'consent'] as const
export type ApprovalKind = (typeof approvalKinds)[number]

/**
 * open ─▶ allowed | denied | expired | cancelled
 *
 * `expired` is a denial by time. `cancelled`: nothing waits for the answer any more.
 */
export const approvalStatuses = ['open', 'allowed', 'denied', 'expired', 'cancelled'] as const
export type ApprovalStatus = (typeof approvalStatuses)[number]

/** How long a decision to allow is remembered: for this call, for the session, or for the project (global: all projects). */
export const approvalScopes = ['once', 'session', 'always'] as const
export type ApprovalScope = (typeof approvalScopes)[number]

/** Who asks, and about what. `session_id` null: nothing waits in a session, for example a changed definition. */
type From = {
  session_id: string | null
  /** Null: global, only an admin sees and decides it. */
  project_id: string | null
  /** As shown to people: the name of the upstream, or of the caller. */
  server: string
  /** Stable: the id of the upstream. Rules and receipts are bound to it, not to the name. */
  server_id: string
  tool: string | null
  /** Shorter than the default of the config. */
  expires_in_seconds?: number
}

/**
 * The key under which a repeated question joins the earlier one. `call_id`: that of the droid's call, unique in its session;
 * a repeat joins the row whatever became of it. `key`: joins while the row is open.
 */
type Joined = { call_id: string; key?: never } | { call_id?: never; key: string }

export type ToolQuestion = From & {
  kind: 'tool'
  session_id: string
  tool: string
  arguments: Record<string, unknown>
  call_id: string
  /** From the policy (`decidedAt`): an ancestor of the session with this autonomy may allow it; null: no session may. */
  allowed_at: Autonomy | null
  /** From the policy: an admin configured that it is asked, so only an admin may allow it for longer than once. */
  set_by_admin: boolean
  /** Why it is asked, for people. */
  because: string
}

export type DefinitionQuestion = From &
  Joined & {
    kind: 'definition'
    /** What changed, for people and for the effect of the decision; at most 64 KiB as JSON. */
    change: {
      status: 'new' | 'changed'
      pin: string
      before: unknown
      after: unknown
      [key: string]: unknown
    }
  }

export type ElicitationQuestion = From &
  Joined & {
    kind: 'elicitation'
    /** The `params` of the request as the upstream sent it, form or URL mode; at most 64 KiB as JSON. */
    request: Record<string, unknown>
  }

export type ConsentQuestion = From &
  Joined & {
    kind: 'consent'
    /** Where a person consents. Never a secret. */
    url: string
  }

export type Question = ToolQuestion | DefinitionQuestion | ElicitationQuestion | ConsentQuestion

export type Decision =
  | {
      decision: 'allow'
      /** `rule`: remembered from an earlier decision; there is no receipt to use. */
      by: 'decision' | 'rule'
      approval_id: string
      /** The answer to an elicitation, valid for its schema; null for other kinds. */
      content: Record<string, unknown> | null
    }
  | {
      decision: 'deny'
      /** `denied` by a person (elicitation: decline), `expired`, or `cancelled` (elicitation: cancel for both). */
      status: 'denied' | 'expired' | 'cancelled'
      approval_id: string
      /** A sentence for the model. */
      reason: string
    }

export type Asking = {
  signal: AbortSignal
  /** Whether this reason of the signal ends the question. A lost connection does not: the call is repeated. */
  cancelled: (reason: unknown) => boolean
  /** Called once when the wait begins, with the id of the open approval. */
  onAsked?: (approval_id: string) => void
}

/** What a receipt is bound to. `call_id` is recorded as its user. */
export type Binding = {
  session_id: string
  server_id: string
  tool: string
  arguments: Record<string, unknown>
  call_id: string
}

/** The error that a droid gets for a call that was not allowed. */
export const refusal = (
  what: string,
  { status, reason, approval_id }: Decision & { decision: 'deny' },
): Fault =>
  new Fault('forbidden', `${what} was not approved: ${reason} (${approval_id})`, {
    hint:
      status === 'denied'
        ? 'do not repeat the call unchanged: a person decided against it; continue without it or ask the user'
        : 'continue without it, or repeat the call to ask again',
  })

/** An approval as its effects see it. */
export type DecidedApproval = {
  approval_id: string
  kind: ApprovalKind
  project_id: string | null
  session_id: string | null
  server_id: string | null
  tool: string | null
  status: ApprovalStatus
  reason: string | null
  decided_by: string | null
  detail: Record<string, unknown>
}

export interface Approvals {
  /**
   * Asks and waits for the decision. A remembered rule answers a tool question at once. Throws `exhausted` if the session or
   * the project has too many open questions, and the reason of the signal when it aborts. Time spent here is not time of the
   * call: start the call's time-out afterwards.
   */
  ask(question: Question, how: Asking): Promise<Decision>
  /** Asks without waiting, for questions without a session: `onDecided` gets the decision, also after a restart. */
  post(question: Question & { session_id: null }): Promise<{ approval_id: string }>
  /**
   * Uses the receipt of an allowed tool question, in the transaction that records the call as sent. False if it was used
   * before, or is bound to something else: the call must then not be made. Needed only for `by: 'decision'`.
   */
  use(trx: Db, approval_id: string, binding: Binding): Promise<boolean>
  /**
   * Runs in the transaction that closes a question without a session (decision, expiry, cancellation), so that its effect,
   * for example the status of a pin, cannot be lost. It must not call this room.
   */
  onDecided(kind: ApprovalKind, effect: (trx: Db, approval: DecidedApproval) => Promise<void>): void
  /** Decides the open questions of a kind about an upstream that were answered elsewhere, for example an OAuth callback. */
  resolve(
    which: { kind: 'consent' | 'definition'; server_id: string; tool?: string; key?: string },
    outcome: { status: 'allowed' | 'denied' | 'cancelled'; reason: string | null; decided_by: string | null },
  ): Promise<string[]>
  /** Cancels all open questions about an upstream and revokes what is remembered of it: it was removed. */
  forgetServer(server_id: string, reason: string): Promise<void>
}

export type Answer = {
  decision: 'allow' | 'deny'
  scope?: ApprovalScope
  reason?: string
  content?: Record<string, unknown>
}
