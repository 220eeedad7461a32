// What the calls of the matrix are about: two projects, and what a row needs. All of it is made by
// the server's own admin token, so that the audit distinguishes preparation from the calls that count.
import { randomBytes, randomUUID } from 'node:crypto'
import { newApprovalId, newExecId } from '../../../internal/ids.ts'
import { startScripted } from '../../fixtures/gateway/scripted-server.ts'
import { query } from '../database.ts'
import { resultIn, rpc } from '../rpc.ts'
import type { TestServer } from '../server.ts'
import type { Args } from './rows.ts'

export type World = {
  /** The project that shared calls are about: its container runs, `there.txt` is in its workspace. */
  project_id: string
  /** The project of the tokens `other` and `other:ro`. */
  other_id: string
  project(fields?: Args): Promise<string>
  /** A workspace that is not the default one. */
  workspace(project_id: string): Promise<string>
  /** A session of the shared project, the same for the same name. */
  session(name?: string): Promise<string>
  /** A detached command of the shared project, which is over. */
  command(): Promise<string>
  /** An open approval of that session. */
  approval(): Promise<string>
  /** A decision that is remembered for the shared project. */
  remembered(): Promise<string>
  /** A call of a caller's tool by that session, still to be answered. */
  callerRequest(): Promise<string>
  /** A schedule of the shared project. */
  schedule(): Promise<string>
  /** A server of the shared project that the project added itself; a new one for each name. */
  mcpServer(name?: string): Promise<string>
  upstream_url: string
  token(scope: string, expires_in_hours?: number): Promise<{ token_id: string; token: string }>
  tokenId(): Promise<string>
  admin(tool: string, args: Args): Promise<Record<string, unknown>>
  /** What was audited of everybody else, as counts by `tool.action outcome`. */
  audited(via: string): Promise<Map<string, number>>
  close(): Promise<void>
}

export async function createWorld(server: TestServer): Promise<World> {
  const { url, admin_token, database_url } = server
  if (database_url === undefined) throw new Error('the matrix needs a server with a cloned database')
  const unique = () => randomBytes(4).toString('hex')

  const admin: World['admin'] = async (tool, args) => {
    const reply = await rpc(url, admin_token, 'tools/call', { name: tool, arguments: args })
    const result = resultIn(reply)
    if (result.isError) throw new Error(`${tool}: ${reply.text}`)
    return result.structuredContent as Record<string, unknown>
  }
  const project = async (fields: Args = {}) => {
    const made = { action: 'create', name: `matrix ${unique()}`, ...fields }
    const { project_id } = await admin('project', made)
    return project_id as string
  }
  const token: World['token'] = async (scope, expires_in_hours) =>
    (await admin('token', { action: 'create', name: 'matrix', scope, expires_in_hours })) as {
      token_id: string
      token: string
    }

  const upstream = await startScripted()
  const servers = new Set<string>()
  const [project_id, other_id] = await Promise.all([project(), project()])
  await admin('container', { action: 'start', project_id })
  await admin('workspace', { action: 'write_file', project_id, path: 'there.txt', content: 'text' })
  const sessions = new Map<string, Promise<string>>()
  async function spawn(): Promise<string> {
    const args = { action: 'spawn', project_id, prompt: 'true', new_session: true, wait_seconds: 60 }
    return (await admin('session', args)).session_id as string
  }
  function session(name = 'shared'): Promise<string> {
    const known = sessions.get(name) ?? spawn()
    sessions.set(name, known)
    return known
  }
  return {
    project_id,
    other_id,
    project,
    token,
    admin,
    tokenId: async () => (await token('admin:ro')).token_id,
    session,
    upstream_url: upstream.url,
    async mcpServer(name = 'shared') {
      if (servers.has(name)) return name
      servers.add(name)
      const settings = { transport: 'http', url: upstream.url, policy: { '*': 'allow' } }
      const text = `insert into upstreams (id, project_id, name, source, trusted, enabled, settings, created_by)
        values ($1, $2, $3, 'api', false, true, $4, 'matrix')`
      await query(database_url, text, [`ups_${unique()}`, project_id, name, JSON.stringify(settings)])
      await admin('mcp_server', { action: 'tools', project_id, name })
      await admin('mcp_server', { action: 'approve_tools', project_id, name })
      return name
    },
    async schedule() {
      const timing = { cron_expr: '@yearly', enabled: false }
      const wanted = { name: 'matrix', prompt: 'true', targets: [{ project_id }], ...timing }
      return (await admin('schedule', { action: 'create', ...wanted })).schedule_id as string
    },
    async command() {
      const id = newExecId()
      const text = `insert into execs (id, project_id, boot_id, command, status, exit_code, stdout_bytes, stderr_bytes,
          created_by, started_at, deadline_at, ended_at)
        values ($1, $2, 'matrix', 'true', 'exited', 0, 0, 0, 'matrix', now(), now(), now())`
      await query(database_url, text, [id, project_id])
      return id
    },
    async approval() {
      const id = newApprovalId()
      const text = `insert into approvals (id, session_id, project_id, request_id, tool_call, options, status, created_at)
        values ($1, $2, $3, $1, '{}', '[]', 'open', now())`
      await query(database_url, text, [id, await session(), project_id])
      return id
    },
    async remembered() {
      const id = newApprovalId()
      const text = `insert into approvals (id, kind, project_id, request_id, tool_call, options, server, server_id, tool,
          status, scope, created_at, decided_at)
        values ($1, 'tool', $2, $1, '{}', '[]', 'files', 'files', 'write', 'allowed', 'always', now(), now())`
      await query(database_url, text, [id, project_id])
      return id
    },
    async callerRequest() {
      const id = randomUUID()
      const text = `insert into caller_requests
        (id, session_id, caller_id, tool, arguments, call_id, status, created_at, deadline_at, audit)
        select $1::uuid, sessions.id, 'matrix', 'look', '{}', $3, 'open', now(), now() + interval '1 hour',
          jsonb_build_object('at', now(), 'caller_kind', 'session', 'caller_id', sessions.id, 'token_id', token_id,
            'session_id', sessions.id, 'via', 'socket', 'tool', 'caller_tool', 'action', 'matrix_look',
            'project_id', project_id, 'request_id', $3::text)
        from sessions where id = $2`
      await query(database_url, text, [id, await session(), id])
      return id
    },
    async workspace(of) {
      const id = `w-${unique()}`
      const text =
        'insert into workspaces (project_id, id, is_default, created_by) values ($1, $2, false, $3)'
      await query(database_url, text, [of, id, 'matrix'])
      return id
    },
    async audited(via) {
      const rows = await query<{ what: string; calls: number }>(
        database_url,
        `select case when action = tool then tool else tool || '.' || action end || ' ' || outcome as what,
           count(*)::int as calls
         from audit
         where via = $1 and tool not like 'mcp:%' and token_id is distinct from (select id from tokens where created_by = 'first start')
         group by 1`,
        [via],
      )
      return new Map(rows.map(({ what, calls }) => [what, calls]))
    },
    close: upstream.stop,
  }
}
