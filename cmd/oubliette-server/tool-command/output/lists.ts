// What the tables of the command line show of each list. A test compares it with the declarations: every list of a tool is
// here, and every field exists.

export type Column = {
  title: string
  /** Fields, separated by dots; of alternatives separated by `|`, the first that has a value. */
  path: string
  as?: 'age' | 'id' | 'status' | 'milliseconds' | 'scope'
  /** Shown with `-o wide` only. */
  wide?: true
  /** Clipped first if the table does not fit. */
  flexible?: true
}
export type List = {
  /** The field of the result that holds the rows. */
  rows: string
  /** The field that `-q` prints. */
  key: string
  /** The time by which the newest row is shown first; without it, rows keep their order. */
  newest?: string
  columns: Column[]
  /** The field that is printed instead of a table, one row per line. */
  lines?: string
  /** Rows are entries of a log: each is printed as one line with all its fields. */
  log?: true
}

type More = Omit<Column, 'title' | 'path'>
const column = (title: string, path: string, more: More = {}): Column => ({ title, path, ...more })
const id = (title: string, path: string, more: More = {}) => column(title, path, { as: 'id', ...more })
const age = (title: string, path: string, more: More = {}) => column(title, path, { as: 'age', ...more })
const status = (path = 'status') => column('STATUS', path, { as: 'status' })
const flexible = { flexible: true } as const
const wide = { wide: true } as const

const runs: List = {
  rows: 'runs',
  key: 'run_id',
  newest: 'due_at',
  columns: [
    id('RUN', 'run_id'),
    status(),
    age('DUE', 'due_at'),
    column('TOOK', 'duration_ms', { as: 'milliseconds' }),
    id('SESSION', 'session_id'),
    column('ERROR', 'error', flexible),
    column('TRIGGER', 'trigger', wide),
    column('PROJECT', 'project_name', wide),
    id('WORKSPACE', 'workspace_id', wide),
  ],
}

const usage: List = {
  rows: 'usage',
  key: 'key',
  columns: [
    column('KEY', 'key', flexible),
    column('NAME', 'name', flexible),
    column('SESSIONS', 'sessions'),
    column('INPUT', 'input_tokens'),
    column('OUTPUT', 'output_tokens'),
    column('COST USD', 'cost_usd'),
  ],
}

/** By tool and action. */
export const lists: Record<string, List> = {
  'project list': {
    rows: 'projects',
    key: 'project_id',
    newest: 'created_at',
    columns: [
      column('NAME', 'name', flexible),
      id('ID', 'project_id'),
      status('container.status'),
      column('DROID', 'droid'),
      column('NETWORK', 'network'),
      age('AGE', 'created_at'),
      column('TYPE', 'container_type', wide),
      column('MODEL', 'model', wide),
      column('DESCRIPTION', 'description', { wide: true, flexible: true }),
    ],
  },
  'session list': {
    rows: 'sessions',
    key: 'session_id',
    newest: 'created_at',
    columns: [
      id('SESSION', 'session_id'),
      column('PROJECT', 'project_name', flexible),
      column('DROID', 'droid'),
      status(),
      column('TURNS', 'turns'),
      age('AGE', 'created_at'),
      column('ANSWER', 'final_text', flexible),
      id('WORKSPACE', 'workspace_id', wide),
      column('MODEL', 'model', wide),
      age('UPDATED', 'updated_at', wide),
      id('PARENT', 'parent_session_id', wide),
    ],
  },
  'session events': {
    rows: 'events',
    key: 'index',
    columns: [
      column('INDEX', 'index'),
      age('AGE', 'at'),
      column('TYPE', 'type'),
      column('TEXT', 'text|final_text|status|title|tool|message', flexible),
    ],
  },
  'workspace list': {
    rows: 'workspaces',
    key: 'workspace_id',
    newest: 'created_at',
    columns: [
      id('WORKSPACE', 'workspace_id', flexible),
      column('DEFAULT', 'is_default'),
      column('STATE', 'state', { as: 'status' }),
      age('USED', 'last_used_at'),
      age('AGE', 'created_at'),
      column('ERROR', 'prepare_error', flexible),
      column('PATH', 'path', wide),
    ],
  },
  'workspace list_dir': {
    rows: 'entries',
    key: 'name',
    columns: [
      column('MODE', 'mode'),
      column('TYPE', 'type'),
      column('SIZE', 'size_bytes'),
      age('AGE', 'modified_at'),
      column('NAME', 'name', flexible),
    ],
  },
  'container exec_list': {
    rows: 'execs',
    key: 'exec_id',
    newest: 'started_at',
    columns: [
      id('EXEC', 'exec_id'),
      status(),
      column('CODE', 'exit_code'),
      age('AGE', 'started_at'),
      column('COMMAND', 'command', flexible),
      column('DIRECTORY', 'working_dir', wide),
      age('ENDED', 'ended_at', wide),
    ],
  },
  'diagnostics server_log': {
    rows: 'entries',
    key: 'message',
    log: true,
    columns: [
      age('AGE', 'at'),
      column('LEVEL', 'level', { as: 'status' }),
      column('MESSAGE', 'message', flexible),
    ],
  },
  'diagnostics audit': {
    rows: 'calls',
    key: 'request_id',
    columns: [
      age('AGE', 'at'),
      column('TOOL', 'tool'),
      column('ACTION', 'action', flexible),
      column('OUTCOME', 'outcome', { as: 'status' }),
      column('TOOK', 'milliseconds', { as: 'milliseconds' }),
      id('CALLER', 'caller_id'),
      column('VIA', 'via', wide),
      id('PROJECT', 'project_id', wide),
      id('SESSION', 'session_id', wide),
      column('REQUEST', 'request_id', wide),
    ],
  },
  'diagnostics tools': {
    rows: 'tools',
    key: 'name',
    columns: [
      column('NAME', 'name'),
      column('SOURCE', 'source'),
      column('DESCRIPTION', 'description', flexible),
      column('CALLER', 'caller_id', wide),
      column('ACTIONS', 'actions', { wide: true, flexible: true }),
    ],
  },
  'diagnostics agents': {
    rows: 'agents',
    key: 'session_id',
    columns: [
      column('DEPTH', 'depth'),
      id('SESSION', 'session_id'),
      column('PROJECT', 'project_name', flexible),
      column('DROID', 'droid'),
      status(),
      age('AGE', 'created_at'),
      column('LAST', 'last_event.type'),
      age('AT', 'last_event.at'),
      column('COST', 'usage.cost_usd'),
      id('PARENT', 'parent_session_id', wide),
      column('MODEL', 'model', wide),
      column('TURNS', 'turns', wide),
    ],
  },
  'diagnostics skills': {
    rows: 'skills',
    key: 'name',
    columns: [
      column('NAME', 'name', flexible),
      column('SOURCE', 'source'),
      column('DESCRIPTION', 'description', flexible),
      column('PATH', 'path', wide),
    ],
  },
  'diagnostics usage': usage,
  'usage usage': usage,
  'mcp_server list': {
    rows: 'servers',
    key: 'name',
    columns: [
      column('NAME', 'name'),
      column('TRANSPORT', 'transport'),
      column('STATE', 'state'),
      column('CREDENTIALS', 'credentials', wide),
      column('TOOLS', 'tools'),
      column('UNAPPROVED', 'unapproved'),
      id('PROJECT', 'project_id'),
      column('REASON', 'reason', flexible),
    ],
  },
  'mcp_server tools': {
    rows: 'tools',
    key: 'name',
    columns: [
      column('NAME', 'name'),
      column('STATUS', 'status'),
      column('SEEN AS', 'visible_name', wide),
      column('DESCRIPTION', 'description', flexible),
    ],
  },
  'approval list': {
    rows: 'approvals',
    key: 'approval_id',
    newest: 'created_at',
    columns: [
      id('APPROVAL', 'approval_id'),
      id('SESSION', 'session_id'),
      column('KIND', 'kind'),
      status(),
      age('AGE', 'created_at'),
      column('TOOL', 'tool_call.title', flexible),
      column('DECIDED BY', 'decided_by', wide),
      column('SCOPE', 'scope', wide),
      column('REASON', 'reason', wide),
      age('EXPIRES', 'expires_at', wide),
    ],
  },
  'schedule list': {
    rows: 'schedules',
    key: 'schedule_id',
    newest: 'created_at',
    columns: [
      id('SCHEDULE', 'schedule_id'),
      column('NAME', 'name', flexible),
      column('CRON', 'cron_expr'),
      column('ZONE', 'time_zone'),
      column('ENABLED', 'enabled'),
      age('NEXT', 'next_run_at'),
      age('AGE', 'created_at', wide),
      column('PROMPT', 'prompt', { wide: true, flexible: true }),
    ],
  },
  'schedule trigger': runs,
  'schedule history': runs,
  'token list': {
    rows: 'tokens',
    key: 'token_id',
    newest: 'created_at',
    columns: [
      id('TOKEN', 'token_id'),
      column('NAME', 'name', flexible),
      column('SCOPE', 'scope', { as: 'scope', flexible: true }),
      column('PROJECT', 'project_name', flexible),
      age('USED', 'last_used_at'),
      age('EXPIRES', 'expires_at'),
      age('REVOKED', 'revoked_at'),
      age('AGE', 'created_at'),
      column('CREATED BY', 'created_by', wide),
    ],
  },
  'container logs': {
    rows: 'lines',
    key: 'text',
    lines: 'text',
    columns: [age('AGE', 'at'), column('STREAM', 'stream'), column('TEXT', 'text', flexible)],
  },
  'project_changes project_changes': {
    rows: 'changes',
    key: 'change',
    columns: [
      column('CHANGE', 'change', flexible),
      column('STATE', 'state', { as: 'status' }),
      column('DONE', 'tasks_done'),
      column('TASKS', 'tasks_total'),
      column('TITLE', 'title', flexible),
      column('PATH', 'path', wide),
    ],
  },
  'project_tasks project_tasks': {
    rows: 'tasks',
    key: 'number',
    columns: [
      column('CHANGE', 'change', flexible),
      column('NUMBER', 'number'),
      column('DONE', 'done'),
      column('TEXT', 'text', flexible),
      column('SECTION', 'section', wide),
    ],
  },
}
