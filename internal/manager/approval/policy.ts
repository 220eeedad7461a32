// Whether a tool call is allowed, asked or denied, as pure functions. docs/approvals.md has the table.

export type Verdict = 'allow' | 'ask' | 'deny'
export type Autonomy = 'off' | 'low' | 'medium' | 'high'

/** What an admin or a project set. Left out fields match everything; the most specific override applies. */
export type Override = {
  /** `project` may only tighten what `admin` set. */
  set_by: 'admin' | 'project'
  project_id?: string
  server_id?: string
  tool?: string
  verdict: Verdict
}

export type PolicySettings = {
  /** At autonomy `high`: which calls are asked nevertheless. */
  ask_at_high: 'destructive' | 'dangerous' | 'none'
}

export type PolicyQuestion = {
  tool: { name: string; annotations?: Record<string, unknown> | undefined }
  server_id: string
  project_id: string | null
  /** Whether its annotations may lower a verdict: an admin added it, or the config trusts all. */
  trusted: boolean
  /** Of the session that calls; null for a call by a token that belongs to no session. */
  autonomy: Autonomy | null
}

export type PolicyAnswer = {
  verdict: Verdict
  /** A sentence for people and models. */
  because: string
  /** The lowest autonomy at which the call would be allowed; null if at none. */
  allowed_at: Autonomy | null
  /** An override of an admin decided. */
  set_by_admin: boolean
}

export type Policy = (
  question: PolicyQuestion,
  overrides: readonly Override[],
  settings: PolicySettings,
) => PolicyAnswer
