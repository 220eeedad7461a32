// The tables of upstream MCP servers as Kysely sees them.
import type { ColumnType, Generated, JSONColumnType } from 'kysely'

type CreatedAt = ColumnType<string, string | undefined, string>
type Json<T extends object> = JSONColumnType<T, string, string>
type Data = Record<string, unknown>

export const transports = ['stdio', 'http', 'sse'] as const
export type Transport = (typeof transports)[number]

/** How an upstream is reached and used. Values of `env` and `headers`: a text with references, or null if stored encrypted. */
export type UpstreamSettings = {
  transport: Transport
  command?: string
  args?: string[]
  env?: Record<string, string | null>
  /** Image of the container of a stdio server; its container type if it is one of `images/`. */
  image?: string
  network?: 'none' | 'internal' | 'open'
  /** Mounts the workspaces of its project. */
  workspace?: 'read' | 'write'
  /** As a child process of the server: only in mcp-servers.json. */
  run?: 'container' | 'process'
  url?: string
  headers?: Record<string, string | null>
  oauth?: { grant: 'authorization_code' | 'client_credentials'; client_id?: string; scope?: string }
  timeout_seconds?: number
  tool_timeouts?: Record<string, number>
  concurrency?: number
  idle_seconds?: number
  max_result_bytes?: number
  cache_seconds?: number
  allow?: string[]
  deny?: string[]
  policy?: Data
  /** Of a global upstream: every project may use it. */
  projects?: 'all'
  unsafe?: boolean
  /** New tools with `readOnlyHint` are approved when they appear. */
  auto_approve?: 'read_only'
}

/** Without `project_id` it is global. `trusted`: an admin or the config file added it. */
export interface UpstreamsTable {
  id: string
  project_id: string | null
  name: string
  source: 'api' | 'file'
  trusted: boolean
  enabled: boolean
  settings: Json<UpstreamSettings>
  /** Encrypted: the literal values of `env` and `headers`. */
  secrets: string | null
  /** Encrypted: client registration and tokens. */
  oauth: string | null
  created_by: string
  created_at: CreatedAt
  updated_at: CreatedAt
  identity: Json<Data> | null
  instructions: string | null
  capabilities: Json<Data> | null
  resources: ColumnType<Data[], string | undefined, string>
  resource_templates: ColumnType<Data[], string | undefined, string>
  prompts: ColumnType<Data[], string | undefined, string>
  discovered_at: string | null
  /** Until when the discovered lists are valid. */
  fresh_until: string | null
  last_status: Json<Data> | null
  /** Of the state of an OAuth consent that was begun. */
  consent_hash: string | null
  consent_at: string | null
}

export const toolStatuses = ['approved', 'pending', 'changed'] as const
export type ToolStatus = (typeof toolStatuses)[number]

export type HiddenCharacter = { path: string; code_point: string; name: string; count: number }

/**
 * `definition` is what the upstream offers now, `approved_definition` what was approved. Only a tool whose pins are equal is
 * `approved`. A tool that the upstream no longer lists stays with `present` false, so that a renamed one can be recognised.
 */
export interface UpstreamToolsTable {
  upstream_id: string
  name: string
  visible_name: string
  definition: Json<Data>
  pin: string
  status: ToolStatus
  present: boolean
  approved_definition: Json<Data> | null
  approved_pin: string | null
  approved_by: string | null
  approved_at: string | null
  /** The vanished tool that this new one resembles. */
  resembles: string | null
  approval_id: string | null
  hidden_characters: ColumnType<HiddenCharacter[], string | undefined, string>
  first_seen_at: CreatedAt
  changed_at: CreatedAt
  words: Generated<string>
  search_text: Generated<string>
}

/**
 * sent → done | failed | outcome_unknown; sent → input_required → sent | cancelled. A row that is `sent` when its server ends
 * becomes `outcome_unknown`.
 */
export type CallStatus = 'sent' | 'input_required' | 'done' | 'failed' | 'cancelled' | 'outcome_unknown'

export interface UpstreamCallsTable {
  id: string
  upstream_id: string
  project_id: string | null
  session_id: string | null
  /** Chosen by the droid: a repeated call is recognised by it. */
  call_id: string | null
  caller_id: string
  tool: string
  arguments: Json<Data>
  arguments_hash: string
  /** Read-only or idempotent: it may be sent again. */
  repeatable: boolean
  status: CallStatus
  /** Of `input_required`: the questions, the answers and the state of the upstream. */
  input: Json<Data> | null
  result: Json<Data> | null
  error: Json<Data> | null
  /** The server process that sent it. */
  boot: string
  created_at: string
  sent_at: string | null
  ended_at: string | null
}
