import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { tools } from '../../../internal/tools/declarations/index.ts'
import {
  type Call,
  expectKinds,
  mint,
  statusOf,
  withKey,
  withToken,
} from '../../fixtures/attacks/authority.ts'
import { droid } from '../../fixtures/droid-socket.ts'
import { startScripted } from '../../fixtures/gateway/scripted-server.ts'
import { end, get, processes } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, uniqueName } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
/** Without a grant, and with the grant `admin`. */
let plain: string
let granted: string

beforeAll(async () => {
  booted = await boot({
    config: {
      log: { level: 'warn' },
      limits: { max_active_sessions: 500, max_spawns_per_minute: 1000, max_agents_per_session: 500 },
    },
  })
  ;[plain, granted] = await Promise.all([booted.project(), booted.project({ api_scope_grant: 'admin' })])
  await Promise.all(
    [plain, granted].map((project_id) => booted.ok('container', { action: 'start', project_id })),
  )
})
afterAll(() => booted?.stop())

const update = (project_id: string, change: object) =>
  booted.ok('project', { action: 'update', project_id, ...change })

describe('a grant', () => {
  test('is set by an admin alone, and not by a session or with a token that it minted', async () => {
    const project_id = await booted.project()
    const change = { action: 'update', project_id, api_scope_grant: 'admin:ro' }
    const one = await droid(booted, granted, { api_scope: 'admin' })
    const session = await withKey(one)
    const child = (await session('token_create', { name: 'child', scope: 'admin' })).result
    const callers: Call[] = [session, await withToken(booted, child.token)]
    for (const scope of [`project:${project_id}`, 'admin:ro'])
      callers.push(await withToken(booted, (await mint(booted, scope)).token))
    expectKinds(await Promise.all(callers.map((call) => call('project', change))), 'forbidden')
    const making = { action: 'create', name: uniqueName(), api_scope_grant: 'admin' }
    expectKinds(await Promise.all(callers.slice(0, 2).map((call) => call('project', making))), 'forbidden')
    const admin = await withToken(booted, (await mint(booted, 'admin')).token)
    expectKinds([await admin('project', change)], 'ok')
    expect((await booted.ok('project', { action: 'get', project_id })).api_scope_grant).toBe('admin:ro')
    await end(booted, one.session_id)
  })

  test('is refused while the project has sessions, and names them', async () => {
    const project_id = await booted.project()
    const { session_id } = await droid(booted, project_id)
    const change = { action: 'update', project_id, api_scope_grant: 'admin' }
    expect(await booted.fault('project', change)).toMatchObject({
      kind: 'conflict',
      message: expect.stringContaining(session_id),
    })
    expect((await get(booted, session_id)).status).toBe('running')
    await end(booted, session_id)
    expect((await booted.ok('project', change)).api_scope_grant).toBe('admin')
  })

  test('is refused while schedules are enabled, and the runs of a lesser token are refused after it', async () => {
    const project_id = await booted.project()
    const lesser = await withToken(booted, (await mint(booted, `project:${project_id}`)).token)
    const timing = { cron_expr: '0 0 1 1 *', prompt: 'true', name: 'old', targets: [{ project_id }] }
    const { schedule_id } = (await lesser('schedule', { action: 'create', ...timing })).result
    const change = { action: 'update', project_id, api_scope_grant: 'admin' }
    expect(await booted.fault('project', change)).toMatchObject({
      kind: 'conflict',
      message: expect.stringContaining(schedule_id),
    })
    await booted.ok('schedule', { action: 'update', schedule_id, enabled: false })
    // One that an admin made counts as well: the lesser token could change its prompt.
    const admins = await booted.ok('schedule', { action: 'create', ...timing })
    const planted = { action: 'update', schedule_id: admins.schedule_id, prompt: 'echo planted' }
    expectKinds([await lesser('schedule', planted)], 'ok')
    expect((await booted.fault('project', change)).message).toContain(admins.schedule_id)
    await booted.ok('schedule', { action: 'delete', schedule_id: admins.schedule_id })
    await booted.ok('project', change)
    for (const action of ['trigger', 'update'])
      expectKinds([await lesser('schedule', { action, schedule_id })], 'forbidden')
    // Its principal is still the lesser token, also when an admin lets it run.
    await booted.ok('schedule', { action: 'trigger', schedule_id })
    const run = await until(
      async () => {
        const { runs } = await booted.ok('schedule', { action: 'history', schedule_id })
        return runs[0]?.status === 'failed' && runs[0]
      },
      { what: 'the run was refused' },
    )
    expect(run.error).toMatch(/grant/)
    expect((await booted.ok('session', { action: 'list', project_id })).sessions).toEqual([])
    await lesser.close()
  })

  test('leaves nothing running that was started before it, and no session that could be resumed', async () => {
    const project_id = await booted.project()
    const lesser = await withToken(booted, (await mint(booted, `project:${project_id}`)).token)
    const before = (await lesser('session', {
      action: 'spawn',
      project_id,
      prompt: 'echo before',
      wait_seconds: 30,
    })) as { result: Answer }
    // It fails with its container, and could be resumed by the next message.
    await booted.ok('container', { action: 'stop', project_id, grace_seconds: 0 })
    await booted.ok('container', { action: 'start', project_id })
    const spying = 'setsid sleep 98765 >/dev/null 2>&1 &'
    expectKinds([await lesser('container', { action: 'exec', project_id, command: spying })], 'ok')
    expect(await processes(booted, project_id, /sleep 98765/)).toHaveLength(1)
    await update(project_id, { api_scope_grant: 'admin' })
    await booted.ok('container', { action: 'start', project_id })
    expect(await processes(booted, project_id, /sleep 98765/)).toEqual([])
    const old = String(before.result.session_id)
    const message = { action: 'message', session_id: old, message: 'echo again' }
    expect((await booted.fault('session', message)).kind).toBe('conflict')
    const next = await booted.ok('session', { action: 'spawn', project_id, prompt: 'true', wait_seconds: 30 })
    expect(next.session_id).not.toBe(old)
    await lesser.close()
  })

  test('that is taken away stops the keys beyond it at once, and what they minted for good', async () => {
    const project_id = await booted.project({ api_scope_grant: 'admin' })
    const [strong, weak] = await Promise.all([
      droid(booted, project_id, { api_scope: 'admin' }),
      droid(booted, project_id, { api_scope: `project:${project_id}` }),
    ])
    const [strongly, weakly] = await Promise.all([withKey(strong), withKey(weak)])
    const { token } = (await strongly('token_create', { name: 'child', scope: 'admin' })).result
    expect(await statusOf(booted, token)).toBe(200)
    expectKinds([await strongly('project_list'), await weakly('project_list')], 'ok')
    await update(project_id, { api_scope_grant: null })
    expectKinds([await strongly('project_list'), await strongly.ask('caller_tools')], 'unauthenticated')
    expectKinds([await weakly('project_list')], 'ok')
    expect(await statusOf(booted, token)).toBe(401)
    // It cannot be given back while they exist.
    const again = { action: 'update', project_id, api_scope_grant: 'admin' }
    expect((await booted.fault('project', again)).kind).toBe('conflict')
    strongly.dialled.close()
    weakly.dialled.close()
  })
})

describe('in a project with a grant, a token of the project', () => {
  type Things = {
    session_id: string
    schedule_id: string
    approval_id: string
    remembered_id: string
    url: string
    request_id: string
    exec_id: string
  }
  const inputs: Record<string, (it: Things) => object> = {
    'project.update': () => ({ description: 'taken' }),
    'project.delete': () => ({}),
    'container.start': () => ({}),
    'container.stop': () => ({}),
    'container.pause': () => ({}),
    'container.unpause': () => ({}),
    'container.exec': () => ({ command: 'true' }),
    'container.exec_kill': ({ exec_id }) => ({ exec_id }),
    'session.spawn': () => ({ prompt: 'true', new_session: true }),
    'session.message': () => ({ message: 'true' }),
    'session.end': ({ session_id }) => ({ session_id }),
    'session.cancel': ({ session_id }) => ({ session_id }),
    'session.cleanup': () => ({ max_age_hours: 0 }),
    'workspace.write_file': () => ({ path: '.bashrc', content: 'planted' }),
    'workspace.delete': () => ({ workspace_id: 'another' }),
    'schedule.create': () => ({ name: 's', cron_expr: '@yearly', prompt: 'true' }),
    'schedule.update': ({ schedule_id }) => ({ schedule_id, prompt: 'planted' }),
    'schedule.trigger': ({ schedule_id }) => ({ schedule_id }),
    'schedule.delete': ({ schedule_id }) => ({ schedule_id }),
    'approval.decide': ({ approval_id }) => ({ approval_id, decision: 'allow' }),
    'approval.revoke': ({ remembered_id }) => ({ approval_id: remembered_id }),
    'mcp_server.add': ({ url }) => ({ name: 'added', transport: 'http', url }),
    'mcp_server.import': ({ url }) => ({ document: { mcpServers: { imported: { url } } } }),
    'mcp_server.update': () => ({ name: 'theirs', timeout_seconds: 20 }),
    'mcp_server.remove': () => ({ name: 'removed' }),
    'mcp_server.approve_tools': () => ({ name: 'theirs' }),
    'mcp_server.call': () => ({ name: 'theirs', tool: 'read_note' }),
    'mcp_server.restart': () => ({ name: 'theirs' }),
    'mcp_server.auth': () => ({ name: 'theirs' }),
    caller_tool_response: ({ session_id, request_id }) => ({ session_id, request_id, result: 'planted' }),
  }
  const writes = Object.values(tools).flatMap((tool) =>
    Object.entries(tool.actions)
      .filter(([, action]) => action.needs === 'project:write')
      .map(([name]) => (tool.unified ? `${tool.name}.${name}` : tool.name)),
  )
  const shapes = new Map(
    Object.values(tools).flatMap((tool) =>
      Object.entries(tool.actions).map(
        ([name, { input }]) => [tool.unified ? `${tool.name}.${name}` : tool.name, input.shape] as const,
      ),
    ),
  )
  let project_id: string
  let things: Things
  let upstream: Awaited<ReturnType<typeof startScripted>>
  let lesser: Awaited<ReturnType<typeof withToken>>
  let control: Call

  beforeAll(async () => {
    project_id = await booted.project({ api_scope_grant: 'admin' })
    const timing = { name: 'theirs', cron_expr: '@yearly', prompt: 'true', enabled: false }
    const one = await droid(booted, project_id)
    const { schedule_id } = await booted.ok('schedule', {
      action: 'create',
      ...timing,
      targets: [{ project_id }],
    })
    const approval_id = 'apr_00000000000000000001'
    await booted.query(
      `insert into approvals (id, session_id, project_id, request_id, tool_call, options, status, created_at)
       values ($1, $2, $3, 'r', '{}', '[]', 'open', now())`,
      [approval_id, one.session_id, project_id],
    )
    const remembered_id = 'apr_00000000000000000002'
    await booted.query(
      `insert into approvals (id, kind, project_id, request_id, tool_call, options, server, server_id, tool, status, scope,
         created_at, decided_at)
       values ($1, 'tool', $2, $1, '{}', '[]', 'files', 'files', 'write', 'allowed', 'always', now(), now())`,
      [remembered_id, project_id],
    )
    upstream = await startScripted()
    const { url } = upstream
    for (const name of ['theirs', 'removed'])
      await booted.ok('mcp_server', {
        action: 'add',
        ...{ project_id, name, transport: 'http', url, policy: { '*': 'allow' } },
      })
    const request_id = '00000000-0000-4000-8000-000000000001'
    await booted.query(
      `insert into caller_requests
         (id, session_id, caller_id, tool, arguments, call_id, status, created_at, deadline_at, audit)
       values ($1, $2, 'app', 'look', '{}', 'c', 'open', now(), now() + interval '1 hour',
         jsonb_build_object('at', now(), 'caller_kind', 'session', 'caller_id', $2::text, 'session_id', $2::text,
           'via', 'socket', 'tool', 'caller_tool', 'action', 'app_look', 'request_id', 'r'))`,
      [request_id, one.session_id],
    )
    const elsewhere = { workspace_id: 'another', create_workspace: true, prompt: 'true', project_id }
    const second = await booted.ok('session', { action: 'spawn', ...elsewhere })
    await end(booted, second.session_id)
    const { exec_id } = await booted.exec(project_id, 'true', { detach: true })
    const ids = { session_id: one.session_id, schedule_id, approval_id, remembered_id, request_id, exec_id }
    things = { ...ids, url }
    lesser = await withToken(booted, (await mint(booted, `project:${project_id}`)).token)
    control = await withToken(booted, (await mint(booted, 'admin')).token)
  })

  afterAll(() => upstream?.stop())

  const argsFor = (key: string) => {
    const [, action] = key.split('.')
    const taken = shapes.get(key)!
    const input = inputs[key]!(things)
    const named = ['session_id', 'schedule_id', 'approval_id', 'exec_id'].some((field) => field in input)
    const where = 'targets' in taken && !named ? { targets: [{ project_id }] } : {}
    const about = 'project_id' in taken && !named ? { project_id } : {}
    return { ...(action ? { action } : {}), ...where, ...about, ...input }
  }

  test('is probed with every action that writes', () => {
    expect(Object.keys(inputs).sort()).toEqual(writes.sort())
  })

  // Those that end what the others need come last.
  const last = ['container.stop', 'session.end', 'schedule.delete', 'session.cleanup', 'project.delete']
  const order = [...writes.filter((key) => !last.includes(key)), ...last]
  test.each(order)('is refused %s, and an admin is not', async (key) => {
    const tool = key.split('.')[0]!
    expectKinds([await lesser(tool, argsFor(key))], 'forbidden')
    if (key === 'session.cleanup') expectKinds([await lesser(tool, { action: 'cleanup' })], 'forbidden')
    expectKinds([await control(tool, argsFor(key))], 'ok')
  })

  test('can still read it', async () => {
    const reads = await withToken(booted, (await mint(booted, `project:${granted}:ro`)).token)
    expectKinds(
      [
        await reads('project', { action: 'get', project_id: granted }),
        await reads('session', { action: 'list', project_id: granted }),
        await reads('config_limits', { project_id: granted }),
      ],
      'ok',
    )
  })
})
