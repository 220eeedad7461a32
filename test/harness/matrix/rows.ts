// One row for every action: its class in CONTRACT, and an input that makes it succeed.
import type { Class } from './expected.ts'
import type { World } from './world.ts'

export type Args = Record<string, unknown>
export type Row = {
  class: Class
  /** What the call is about; given a new project if `fresh`, else the one that all share and whose container runs. */
  input(project_id: string, world: World): Args | Promise<Args>
  fresh?: true
  /** Where a session that comes over the socket may not do what a token of the same scope may. */
  for_sessions?: Class
  /** The action that a call that succeeds runs as well, with an audit row of its own. */
  runs?: string
}
/** `project.update` of one field, on a new project that is made with `before`. */
export type FieldRow = {
  field: string
  class: Class
  before: Args
  change: (project_id: string) => Args
  for_sessions?: Class
}

const about = (more: Args = {}) => ({ input: (project_id: string) => ({ project_id, ...more }) })
const nothing = (more: Args = {}) => ({ input: () => more })
const session = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ session_id: await world.session(), ...more }),
})
const command = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ exec_id: await world.command(), ...more }),
})
const approval = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ approval_id: await world.approval(), ...more }),
})
const schedule = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ schedule_id: await world.schedule(), ...more }),
})
/** About a server of the shared project. */
const mcpServer = (more: Args = {}) => ({
  input: async (project_id: string, world: World) => ({ project_id, name: await world.mcpServer(), ...more }),
})
let made = 0

/** By `tool.action`, or `tool` for a tool without actions. */
export const rows: Record<string, Row> = {
  'diagnostics.health': { class: 'admin read', ...nothing() },
  'diagnostics.server_log': { class: 'admin read', ...nothing() },
  'diagnostics.db_query': { class: 'admin read', ...nothing({ query: 'select 1' }) },
  'diagnostics.config': { class: 'admin read', ...nothing() },
  'diagnostics.audit': { class: 'admin read', ...nothing() },
  'diagnostics.tools': { class: 'admin read', ...session() },
  'diagnostics.tool_schema': { class: 'admin read', ...nothing({ tool: 'project' }) },
  'diagnostics.run_tool': {
    class: 'admin read',
    runs: 'schedule.preview',
    ...nothing({ tool: 'schedule', arguments: { action: 'preview', cron_expr: '@daily' } }),
  },
  'diagnostics.agents': { class: 'admin read', ...nothing() },
  'diagnostics.agent_state': { class: 'admin read', ...session() },
  'diagnostics.skills': { class: 'admin read', ...about() },
  'diagnostics.usage': { class: 'admin read', ...nothing() },

  'project.create': { class: 'global write', input: () => ({ name: `matrix created ${++made}` }) },
  'project.list': { class: 'global read', ...nothing() },
  'project.get': { class: 'project read', ...about() },
  'project.update': { class: 'project write', ...about({ description: 'changed' }) },
  'project.delete': { class: 'project write', fresh: true, ...about() },
  'project.options': { class: 'global read', ...nothing() },

  'container.start': { class: 'project write', ...about() },
  'container.stop': { class: 'project write', fresh: true, ...about() },
  'container.pause': {
    class: 'project write',
    fresh: true,
    input: async (project_id, world) => {
      await world.admin('container', { action: 'start', project_id })
      return { project_id }
    },
  },
  'container.unpause': { class: 'project write', ...about() },
  'container.exec': { class: 'project write', ...about({ command: 'true' }) },
  'container.exec_status': { class: 'project read', ...command() },
  'container.exec_output': { class: 'project read', ...command() },
  'container.exec_kill': { class: 'project write', ...command() },
  'container.exec_list': { class: 'project read', ...about() },
  'container.logs': { class: 'project read', ...about({ tail: 1 }) },

  'session.spawn': { class: 'project write', ...about({ prompt: 'true', new_session: true }) },
  'session.message': { class: 'project write', ...session({ message: 'true' }) },
  'session.get': { class: 'project read', ...session() },
  'session.list': { class: 'project read', ...about() },
  'session.events': { class: 'project read', ...session() },
  'session.cancel': { class: 'project write', ...session() },
  'session.end': {
    class: 'project write',
    input: async (_, world) => ({ session_id: await world.session('to end') }),
  },
  'session.cleanup': { class: 'project write', ...about() },

  'mcp_server.add': {
    class: 'project write',
    input: (project_id, { upstream_url: url }) => ({
      project_id,
      name: `added-${++made}`,
      transport: 'http',
      url,
    }),
  },
  'mcp_server.import': {
    class: 'project write',
    input: (project_id, { upstream_url: url }) => ({
      project_id,
      document: { mcpServers: { [`imported-${++made}`]: { url } } },
    }),
  },
  'mcp_server.list': { class: 'project read', ...about() },
  'mcp_server.get': { class: 'project read', ...mcpServer() },
  'mcp_server.update': { class: 'project write', ...mcpServer({ timeout_seconds: 20 }) },
  'mcp_server.remove': {
    class: 'project write',
    input: async (project_id, world) => ({
      project_id,
      name: await world.mcpServer(`removed-${++made}`),
    }),
  },
  'mcp_server.tools': { class: 'project read', ...mcpServer() },
  // A droid that approves tools would decide about itself.
  'mcp_server.approve_tools': {
    class: 'project write',
    for_sessions: 'project never',
    ...mcpServer(),
  },
  'mcp_server.call': { class: 'project write', ...mcpServer({ tool: 'read_note' }) },
  'mcp_server.restart': { class: 'project write', ...mcpServer() },
  'mcp_server.auth': {
    class: 'project write',
    input: async (project_id, world) => ({ project_id, name: await world.mcpServer('authorized') }),
  },

  'approval.list': { class: 'project read', ...about() },
  'approval.get': { class: 'project read', ...approval() },
  // The approval is not of a session below the one that asks.
  'approval.decide': {
    class: 'project write',
    for_sessions: 'project never',
    ...approval({ decision: 'deny' }),
  },
  'approval.revoke': {
    class: 'project write',
    for_sessions: 'project never',
    input: async (_, world) => ({ approval_id: await world.remembered() }),
  },

  'schedule.create': {
    class: 'project write',
    input: (project_id) => ({
      name: 'matrix',
      cron_expr: '@yearly',
      prompt: 'true',
      targets: [{ project_id }],
    }),
  },
  'schedule.list': { class: 'project read', ...about() },
  'schedule.get': { class: 'project read', ...schedule() },
  'schedule.update': { class: 'project write', ...schedule({ name: 'changed' }) },
  'schedule.delete': { class: 'project write', ...schedule() },
  'schedule.trigger': { class: 'project write', ...schedule() },
  'schedule.history': { class: 'project read', ...schedule() },
  'schedule.preview': { class: 'global read', ...nothing({ cron_expr: '@daily' }) },

  'workspace.list': { class: 'project read', ...about() },
  'workspace.delete': {
    class: 'project write',
    input: async (project_id, world) => ({ project_id, workspace_id: await world.workspace(project_id) }),
  },
  'workspace.list_dir': { class: 'project read', ...about() },
  'workspace.read_file': { class: 'project read', ...about({ path: 'there.txt' }) },
  'workspace.write_file': { class: 'project write', ...about({ path: 'there.txt', content: 'text' }) },
  'workspace.path_info': { class: 'project read', ...about({ path: 'there.txt' }) },

  'token.create': { class: 'admin', ...nothing({ name: 'matrix', scope: 'admin:ro' }) },
  'token.list': { class: 'admin', ...nothing() },
  'token.revoke': { class: 'admin', input: async (_, world) => ({ token_id: await world.tokenId() }) },

  caller_tool_response: {
    class: 'project write',
    input: async (_, world) => ({
      session_id: await world.session(),
      request_id: await world.callerRequest(),
      result: 'done',
    }),
  },
  config_limits: { class: 'project read', ...about() },
  image_rebuild: { class: 'global write', ...nothing({ container_type: 'base' }) },
  project_changes: { class: 'project read', ...about() },
  project_tasks: { class: 'project read', ...about() },
  usage: { class: 'project read', ...about() },
}

/** What the server of the matrix has to be booted with: its upstream listens on the loopback interface. */
export const matrixNetworks = ['127.0.0.0/8']
export const matrixCredentials = {
  first: { provider: 'git', key: 'first-key-of-the-matrix' },
  second: { provider: 'git', key: 'second-key-of-the-matrix' },
}

const free = (field: string, value: unknown): FieldRow => ({
  field,
  class: 'project write',
  before: {},
  change: () => ({ [field]: value }),
})
const tighter = (field: string, before: unknown, after: unknown): FieldRow => ({
  field,
  class: 'project write',
  before: before === undefined ? {} : { [field]: before },
  change: () => ({ [field]: after }),
})
const looser = (field: string, before: unknown, after: unknown): FieldRow => ({
  ...tighter(field, before, after),
  class: 'project boundary',
})

/** By what is done. Every field has a row, and every boundary one that loosens it. */
export const fieldRows: Record<string, FieldRow> = {
  name: { ...free('name', undefined), change: (project_id) => ({ name: `renamed ${project_id}` }) },
  description: free('description', 'another'),
  droid: free('droid', 'shell'),
  model: free('model', 'another'),
  workspace_isolation: free('workspace_isolation', true),
  'image to another': looser('image', undefined, 'busybox:latest'),
  'image to the same': tighter('image', 'busybox:latest', 'busybox:latest'),
  'container_type to another': looser('container_type', 'base', 'dev'),
  'network to a tighter one': tighter('network', 'open', 'internal'),
  'network to a looser one': looser('network', 'none', 'internal'),
  'limits to lower ones': tighter('limits', { memory_mb: 512 }, { memory_mb: 256, pids: 100 }),
  'limits to a higher one': looser('limits', { memory_mb: 512 }, { memory_mb: 513 }),
  'limits to a lower and a higher one': looser('limits', { cpus: 1 }, { memory_mb: 128, cpus: 2 }),
  'limits to more than the default of the config': looser('limits', undefined, { max_active_sessions: 999 }),
  'limits to no limit of cost': looser('limits', { max_cost_usd: 5 }, { max_cost_usd: 0 }),
  'disabled_tools to more': tighter('disabled_tools', ['token'], ['token', 'schedule']),
  'disabled_tools to others': looser('disabled_tools', ['token'], ['schedule']),
  'mcp_servers to fewer': tighter('mcp_servers', ['one', 'two'], ['two']),
  'mcp_servers to others': looser('mcp_servers', ['one'], ['two']),
  'credential_refs to fewer': tighter('credential_refs', ['first', 'second'], ['second']),
  'credential_refs to others': looser('credential_refs', ['first'], ['first', 'second']),
  'protected_paths to more': tighter('protected_paths', ['a'], ['a', 'b']),
  'protected_paths to fewer': looser('protected_paths', ['a', 'b'], ['b']),
  'api_scope_grant to a scope': {
    ...looser('api_scope_grant', undefined, 'admin:ro'),
    for_sessions: 'project never',
  },
  'api_scope_grant to none': looser('api_scope_grant', 'admin', null),
}
