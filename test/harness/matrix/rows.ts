// One row for every action: its class in CONTRACT, and an input that makes it succeed.
import type { Class } from './expected.ts'
import type { World } from './world.ts'

export type Args = Record<string, unknown>
export type Row = {
  class: Class
  /** What the call is about; given a new project if `fresh`, else the one that all share and whose container runs. */
  input(project_id: string, world: World): Args | Promise<Args>
  fresh?: true
}

const about = (more: Args = {}) => ({ input: (project_id: string) => ({ project_id, ...more }) })
const nothing = (more: Args = {}) => ({ input: () => more })
const session = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ session_id: await world.session(), ...more }),
})
const approval = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ approval_id: await world.approval(), ...more }),
})
const schedule = (more: Args = {}) => ({
  input: async (_: string, world: World) => ({ schedule_id: await world.schedule(), ...more }),
})
let made = 0

/** By `tool.action`, or `tool` for a tool without actions. */
export const rows: Record<string, Row> = {
  'project.create': { class: 'global write', input: () => ({ name: `matrix created ${++made}` }) },
  'project.list': { class: 'global read', ...nothing() },
  'project.get': { class: 'project read', ...about() },
  'project.update': { class: 'project write', ...about({ description: 'changed' }) },
  'project.delete': { class: 'project write', fresh: true, ...about() },
  'project.options': { class: 'global read', ...nothing() },

  'container.start': { class: 'project write', ...about() },
  'container.stop': { class: 'project write', fresh: true, ...about() },
  'container.exec': { class: 'project write', ...about({ command: 'true' }) },
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

  'approval.list': { class: 'project read', ...about() },
  'approval.get': { class: 'project read', ...approval() },
  'approval.decide': { class: 'project write', ...approval({ decision: 'deny' }) },

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
}
