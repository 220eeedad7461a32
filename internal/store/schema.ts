// The tables as Kysely sees them. Times are read as ISO strings (see `open.ts`), JSON as plain values.

import type { ColumnType, Generated, JSONColumnType } from 'kysely'
import type { Limits } from '../config/limits.ts'
import type { SessionStatus } from '../protocol/session-status.ts'
import type { UpstreamCallsTable, UpstreamsTable, UpstreamToolsTable } from './rows/upstream/tables.ts'

/** Set by the database if omitted; read as an ISO string. */
type CreatedAt = ColumnType<string, string | undefined, string>
type Json<T extends object> = JSONColumnType<T, string, string>

export interface InstanceTable {
  singleton: Generated<boolean>
  id: string
  created_at: CreatedAt
}

/** The content of a file of SQL functions that was applied last. */
export interface SqlFunctionsTable {
  file: string
  hash: string
  applied_at: CreatedAt
}

export interface TokensTable {
  id: string
  name: string
  scope: string
  hash: Buffer
  created_by: string
  created_at: CreatedAt
  expires_at: string | null
  revoked_at: string | null
  last_used_at: string | null
  /** Set for a token that was created through a session: it is revoked with that session and with that token. */
  parent_session_id: string | null
  parent_token_id: string | null
}

export interface ProjectsTable {
  id: string
  name: string
  description: string
  container_type: string
  image: string | null
  droid: string | null
  model: string | null
  remote_url: string | null
  init_git: boolean
  workspace_isolation: boolean
  protected_paths: Json<string[]>
  network: 'none' | 'internal' | 'open'
  limits: Json<Partial<Limits>>
  disabled_tools: Json<string[]>
  mcp_servers: Json<string[]>
  credential_refs: Json<string[]>
  /** The widest api_scope beyond the project that its sessions may have; null for none. */
  api_scope_grant: string | null
  created_by: string
  idempotency_key: string | null
  idempotency_hash: string | null
  created_at: CreatedAt
  updated_at: CreatedAt
  /** Set by the first step of a delete; a sweep completes a delete that a crash has interrupted. */
  deleting_at: string | null
}

export const containerStatuses = ['absent', 'running', 'paused', 'stopped', 'failed'] as const
export type ContainerStatus = (typeof containerStatuses)[number]

/** `wanted` is the requested state, `status` the state that the engine reported last. */
export interface ContainersTable {
  project_id: string
  wanted: 'running' | 'stopped'
  status: ContainerStatus
  reason: string | null
  container_id: string | null
  spec_hash: string | null
  failures: Generated<number>
  updated_at: CreatedAt
  /** Size of its directories and its writable layer, as last measured. */
  disk_used_bytes: number | null
  disk_measured_at: string | null
  disk_state: Generated<DiskState>
  /** The limit it was created with: a changed limit of the project applies when it is recreated. */
  memory_mb: number | null
  /** Why it ended last, until the supervisor has connected after the next start. */
  last_end: string | null
}

/**
 * pending → preparing → ready | failed. A failed workspace is prepared again at the next start of its container. After a
 * crash the reconciler continues with those in `preparing`.
 */
export const workspaceStates = ['pending', 'preparing', 'ready', 'failed'] as const
export type WorkspaceState = (typeof workspaceStates)[number]

/**
 * ok ⇄ over: more than `limits.disk_mb` is used; the container was stopped and may be started to clean up.
 * stopping: the limit is exceeded; the sessions and the container are being stopped.
 */
export type DiskState = 'ok' | 'stopping' | 'over'

export interface WorkspacesTable {
  project_id: string
  id: string
  is_default: boolean
  created_by: string
  created_at: CreatedAt
  last_used_at: CreatedAt
  /** When git was set up or the remote was cloned; null before the first start of the container. */
  prepared_at: string | null
  prepare_error: string | null
  state: Generated<WorkspaceState>
}

export interface AuditTable {
  id: Generated<number>
  at: string
  caller_kind: string
  caller_id: string
  token_id: string | null
  session_id: string | null
  via: string
  tool: string
  action: string
  project_id: string | null
  outcome: string
  milliseconds: number
  request_id: string
  /** The server process that wrote the row, and the number of the row there; null in rows that SQL functions write. */
  boot: string | null
  seq: number | null
  /** Why the outcome is `unknown`. */
  reason: Generated<string | null>
}

export interface SessionsTable {
  id: string
  project_id: string
  workspace_id: string
  droid: string
  model: string | null
  reasoning_level: string | null
  autonomy_level: 'off' | 'low' | 'medium' | 'high'
  tools_allowed: Json<string[]>
  tools_disallowed: Json<string[]>
  status: SessionStatus
  reason: string | null
  requires: Json<string[]>
  parent_session_id: string | null
  root_session_id: string
  depth: number
  created_by: string
  token_id: string | null
  source: string | null
  external_id: string | null
  api_scope: string | null
  /** When the credential of its creator expires: after that its key has no api_scope. */
  key_expires_at: string | null
  key_hash: Buffer
  /** Each start of the droid gets a new key, derived from this number. */
  key_generation: number
  agent_session_id: string | null
  next_index: number
  /** The last committed sequence number of the supervisor; -1 for none. */
  committed_seq: Generated<number>
  turns: Generated<number>
  final_text: string | null
  stop_reason: string | null
  input_tokens: Generated<number>
  output_tokens: Generated<number>
  cost_usd: Generated<number>
  idempotency_key: string | null
  idempotency_hash: string | null
  created_at: string
  updated_at: string
  idle_at: string | null
  ended_at: string | null
  /** When its end was requested: it cannot be resumed afterwards, regardless of its status. */
  end_requested_at: string | null
  /** Approximate size of its events in the database. */
  stored_bytes: Generated<number>
  /** When it reached `limits.session_mb`: later events are dropped. */
  full_at: string | null
  /** What is prepared for it while it is `preparing`, and how much of that is done. */
  step: string | null
  percent: number | null
  /** Since when it has been waiting for memory. */
  queued_at: string | null
  /** Idle without a process: the next message starts its agent again. */
  hibernated: Generated<boolean>
  /** Its agent can resume a conversation in a new process. */
  resumable: Generated<boolean>
}

export interface EventsTable {
  session_id: string
  index: number
  position: Generated<number>
  project_id: string
  root_session_id: string
  type: string
  at: string
  data: Json<Record<string, unknown>>
}

/** Commands for the supervisor. A row is deleted when the supervisor has accepted the command. */
export interface CommandsTable {
  id: string
  number: Generated<number>
  session_id: string
  project_id: string
  kind: 'start' | 'prompt' | 'cancel' | 'end' | 'permission_answer' | 'hibernate'
  payload: Json<Record<string, unknown>>
  created_at: CreatedAt
}

/** `session_id` null: a question that no session waits for. `project_id` null: global, for admins. */
export interface ApprovalsTable {
  id: string
  kind: Generated<'permission' | 'tool' | 'definition' | 'elicitation' | 'consent'>
  session_id: string | null
  project_id: string | null
  request_id: string
  tool_call: Json<Record<string, unknown>>
  options: Json<Record<string, unknown>[]>
  server: Generated<string | null>
  server_id: Generated<string | null>
  tool: Generated<string | null>
  /** As displayed: long ones are clipped, unsafe characters escaped. `arguments_hash` is of the whole. */
  arguments: ColumnType<Record<string, unknown> | null, string | null | undefined, never>
  arguments_hash: Generated<string | null>
  /** By kind: why it is asked, the change of a definition, the request of an elicitation, the URL of a consent. */
  detail: ColumnType<Record<string, unknown>, string | undefined, never>
  /** The answer to an elicitation. */
  content: ColumnType<Record<string, unknown> | null, string | null | undefined, string | null>
  status: 'open' | 'allowed' | 'denied' | 'expired' | 'cancelled'
  scope: Generated<'once' | 'session' | 'always' | null>
  reason: string | null
  decided_by: string | null
  decided_by_admin: Generated<boolean>
  /** A repeat of the droid's call joins its row, whatever became of it. */
  call_id: Generated<string | null>
  /** A repeat of a question without a call joins the open row. */
  ask_key: Generated<string | null>
  /** The autonomy with which an ancestor of the session may allow it; null: no session may. */
  allowed_at: Generated<'off' | 'low' | 'medium' | 'high' | null>
  /** An admin configured that it is asked. */
  set_by_admin: Generated<boolean>
  created_at: string
  expires_at: Generated<string | null>
  decided_at: string | null
  /** When its receipt was used, and by which call. */
  used_at: Generated<string | null>
  used_by: Generated<string | null>
  revoked_at: Generated<string | null>
  revoked_by: Generated<string | null>
}

export type CallerTool = {
  name: string
  description: string
  inputSchema: Record<string, unknown>
  annotations?: Record<string, unknown>
  timeout_seconds?: number
  /** Each call is asked in the approval inbox before the caller gets it. */
  requires_approval?: boolean
}

/** Callers that offer tools to a session. Only the principal that declared them may answer requests. */
export interface SessionCallersTable {
  session_id: string
  caller_id: string
  declared_by: string
  tools: Json<CallerTool[]>
  updated_at: CreatedAt
}

export interface CallerRequestsTable {
  id: string
  session_id: string
  caller_id: string
  tool: string
  arguments: Json<Record<string, unknown>>
  /** Chosen by the droid: a repeated call joins the existing request. */
  call_id: string
  status: 'open' | 'answered' | 'timed_out' | 'cancelled'
  answer: Json<{ result: unknown } | { error: unknown }> | null
  answered_by: string | null
  created_at: string
  deadline_at: string
  answered_at: string | null
  /** The audit row of the droid's call, without its outcome; null in rows that an earlier version closed. */
  audit: Json<Record<string, unknown>> | null
}

/** Calls of `oubliette_*` tools by droids that were started and must not be repeated. */
export interface DroidCallsTable {
  session_id: string
  call_id: string
  begun_at: CreatedAt
}

export interface SchedulesTable {
  id: string
  name: string
  cron_expr: string
  time_zone: string
  prompt: string
  enabled: boolean
  /** Why the server disabled it; null if a caller did. */
  disabled_reason: string | null
  overlap_behavior: 'skip' | 'queue' | 'parallel'
  session_behavior: 'resume' | 'new'
  catch_up: 'skip' | 'once'
  droid: string | null
  /** The scope of its runs: that of its token at creation. */
  scope: string
  token_id: string | null
  /** Set when a session created it with a scope beyond its project: it is disabled when that session ends. */
  session_id: string | null
  created_by: string
  next_run_at: string | null
  created_at: string
  updated_at: string
}

export interface ScheduleTargetsTable {
  id: Generated<number>
  schedule_id: string
  project_id: string
  workspace_id: string | null
  session_id: string | null
}

export type RunStatus = 'queued' | 'running' | 'success' | 'failed' | 'skipped' | 'cancelled'

/** The prompt is stored until the run ends, so that an update of the schedule does not change it. */
export interface ScheduleRunsTable {
  id: string
  number: Generated<number>
  schedule_id: string
  target_id: number | null
  project_id: string
  workspace_id: string | null
  trigger: 'cron' | 'catch_up' | 'manual'
  due_at: string
  status: RunStatus
  prompt: string | null
  session_behavior: 'resume' | 'new'
  droid: string | null
  session_id: string | null
  turn_id: string | null
  since_index: number | null
  output: string | null
  error: string | null
  started_at: string | null
  ended_at: string | null
  claimed_by: string | null
  lease_until: string | null
  created_at: string
}

/** The total that the project has spent on models is this plus its `project_costs`. */
export interface ProjectSpendingTable {
  project_id: string
  spent_usd: Generated<number>
}

/** Costs that are not yet added to `project_spending`; a trigger on sessions inserts them. */
export interface ProjectCostsTable {
  project_id: string
  usd: number
}

/** The maximum cost of a running request to a model. */
export interface ModelReservationsTable {
  id: string
  project_id: string
  session_id: string
  provider: string
  model: string
  amount_usd: number
  /** Identifies the home of the server, which one process at a time uses. */
  home: string
  process: string
  created_at: CreatedAt
  lease_until: string
}

/** Tokens and cost by hour, session and model; `model` is '' if unknown. */
export interface UsageTable {
  hour: string
  project_id: string
  session_id: string
  model: string
  token_id: string | null
  input_tokens: number
  output_tokens: number
  cost_usd: number
}

export interface SuspectsTable {
  key: string
  project_id: string
  what: string
  ends: number
  last_at: CreatedAt
}

/** An MCP session of the protocol revisions before 2026-07-28. */
export interface McpSessionsTable {
  id: string
  /** The caller of its last request. */
  caller: Json<Record<string, unknown>>
  /** The parameters of its `initialize`. */
  params: Json<Record<string, unknown>>
  /** The URIs of the subscribed resources. */
  subscriptions: ColumnType<string[], string | undefined, string>
  log_level: string | null
  used_at: CreatedAt
}

/** running → exited | timed_out | killed | lost. `lost`: its end was not observed. */
export const execStatuses = ['running', 'exited', 'timed_out', 'killed', 'lost'] as const

/** A detached command, sent to the supervisor of the boot `boot_id` of the container. */
export interface ExecsTable {
  id: string
  project_id: string
  boot_id: string
  /** As displayed: a long command is truncated. */
  command: string
  working_dir: string | null
  status: (typeof execStatuses)[number]
  exit_code: number | null
  reason: string | null
  /** Size of its output, known when it has ended. */
  stdout_bytes: number | null
  stderr_bytes: number | null
  created_by: string
  token_id: string | null
  session_id: string | null
  started_at: string
  deadline_at: string
  ended_at: string | null
}

export interface Database {
  upstreams: UpstreamsTable
  upstream_tools: UpstreamToolsTable
  upstream_calls: UpstreamCallsTable
  execs: ExecsTable
  mcp_sessions: McpSessionsTable
  project_spending: ProjectSpendingTable
  project_costs: ProjectCostsTable
  model_reservations: ModelReservationsTable
  suspects: SuspectsTable
  schedules: SchedulesTable
  schedule_targets: ScheduleTargetsTable
  schedule_runs: ScheduleRunsTable
  session_callers: SessionCallersTable
  caller_requests: CallerRequestsTable
  droid_calls: DroidCallsTable
  sessions: SessionsTable
  events: EventsTable
  commands: CommandsTable
  approvals: ApprovalsTable
  instance: InstanceTable
  sql_functions: SqlFunctionsTable
  tokens: TokensTable
  usage: UsageTable
  projects: ProjectsTable
  containers: ContainersTable
  workspaces: WorkspacesTable
  audit: AuditTable
}
