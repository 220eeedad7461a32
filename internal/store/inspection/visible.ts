// What a read-only query of an operator may see: a view of each table, without the columns that could be used to act as
// someone else. A table that is in neither list fails a test, so that a new one is decided on.

/** By table, the columns that its view leaves out. */
export const visibleTables: Record<string, readonly string[]> = {
  approvals: ['content'],
  audit: [],
  caller_requests: [],
  commands: [],
  containers: [],
  droid_calls: [],
  events: [],
  execs: [],
  instance: [],
  mcp_sessions: ['id'],
  model_reservations: [],
  project_costs: [],
  project_spending: [],
  projects: [],
  schedule_runs: [],
  schedule_targets: [],
  schedules: [],
  session_callers: [],
  sessions: ['key_hash'],
  suspects: [],
  tokens: ['hash'],
  usage: [],
  workspaces: [],
}

/** Tables of the migrator. */
export const hiddenTables: readonly string[] = ['kysely_migration', 'kysely_migration_lock', 'sql_functions']
