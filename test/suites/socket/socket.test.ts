// Our own tools inside containers: what a key may do, what it may ask for, and that it ends with its session.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { dial, dialAs, droid, keyOf } from '../../fixtures/droid-socket.ts'
import { spawn, untilStatus } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, uniqueName } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let home: string
let other: string
beforeAll(async () => {
  booted = await boot({ config: { limits: { max_active_sessions: 200, max_spawns_per_minute: 1000 } } })
  home = await booted.project({ api_scope_grant: 'admin' })
  other = await booted.project()
})
afterAll(() => booted?.stop())

async function orchestrator(api_scope: string | undefined, project_id = home) {
  const one = await droid(booted, project_id, api_scope ? { api_scope } : {})
  const dialled = await dialAs(one)
  const call = (tool: string, args: object = {}, more: object = {}) =>
    dialled.ask('oubliette_call_tool', { tool, arguments: args, ...more })
  return { ...one, dialled, call }
}

describe('api_scope', () => {
  it('is nothing unless the spawner asks for it', async () => {
    const { call, dialled } = await orchestrator(undefined)
    expect((await dialled.ask('oubliette_tools')).result).toEqual({ tools: [] })
    expect((await call('project_list')).error).toMatchObject({ code: -32002 })
    dialled.close()
  })

  it('is never more than the spawner holds, at any depth', async () => {
    const scope = `project:${home}`
    const { token } = await booted.ok('token', { action: 'create', name: 'p', scope })
    const client = await connect(booted.server, token)
    for (const api_scope of ['admin', 'admin:ro', `project:${other}`, `project:${other}:ro`]) {
      const refused = await client.call('session', {
        action: 'spawn',
        project_id: home,
        prompt: 'true',
        new_session: true,
        api_scope,
      })
      expect(refused.structured.error).toMatchObject({ kind: 'forbidden' })
    }
    await client.close()
    const { call, dialled } = await orchestrator(`project:${home}:ro`)
    expect((await call('session_spawn', { project_id: home, prompt: 'true' })).error).toMatchObject({
      code: -32002,
    })
    const child = { message: 'true', api_scope: scope }
    expect((await dialled.ask('session_message', child)).error).toMatchObject({ code: -32002 })
    const bare = await orchestrator(undefined)
    expect((await bare.dialled.ask('session_message', child)).error).toMatchObject({ code: -32002 })
    dialled.close()
    bare.dialled.close()
  })

  it('admin makes an admin agent: it creates projects and tokens, and the audit names the session', async () => {
    const { call, dialled, session_id } = await orchestrator('admin')
    const made = await call('project_create', { name: uniqueName() })
    expect(made.result).toMatchObject({ project_id: expect.any(String) })
    const token = await call('token', { action: 'create', name: 'by an agent', scope: `project:${home}:ro` })
    const client = await connect(booted.server, String(token.result?.token))
    expect((await client.call('project', { action: 'get', project_id: home })).is_error).toBe(false)
    await client.close()
    const audited = `select caller_kind, caller_id, via, tool, action, outcome from audit where session_id = $1 order by id`
    // What is done with the token that it minted is put down to the session too; a read does not wait for its row.
    const rows = await until(
      async () => {
        const found = await booted.query<{ outcome: string }>(audited, [session_id])
        return found.length >= 3 && found.every(({ outcome }) => outcome !== 'pending') && found
      },
      { what: 'every call has its audit row' },
    )
    const by = { caller_kind: 'session', caller_id: session_id, via: 'socket', outcome: 'ok' }
    expect(rows).toEqual([
      { ...by, tool: 'project', action: 'create' },
      { ...by, tool: 'token', action: 'create' },
      {
        caller_kind: 'token',
        caller_id: token.result?.token_id,
        via: 'http',
        outcome: 'ok',
        tool: 'project',
        action: 'get',
      },
    ])
    dialled.close()
  })

  it('lets an orchestrator spawn in other projects, as its children, with all limits counted', async () => {
    const limited = await booted.project({ limits: { max_agents_per_session: 3, max_recursion_depth: 1 } })
    const { call, dialled, session_id } = await orchestrator('admin')
    const child = { project_id: limited, prompt: 'sleep 900', new_session: true }
    const first = await call('session_spawn', child)
    expect(first.result).toMatchObject({ session_id: expect.any(String) })
    const second = await call('session_spawn', child)
    expect(second.error).toBeUndefined()
    expect((await call('session_spawn', child)).error).toMatchObject({ data: { kind: 'exhausted' } })
    const { sessions } = await booted.ok('session', { action: 'list', parent_session_id: session_id })
    expect(sessions).toHaveLength(2)
    for (const one of sessions)
      expect(one).toMatchObject({ project_id: limited, depth: 1, root_session_id: session_id, status: /.+/ })
    const grandchild = String(first.result?.session_id)
    await untilStatus(booted, grandchild, 'running')
    const deeper = await dialAs({
      session_id: grandchild,
      project_id: limited,
      api_key: keyOf(booted, grandchild),
      socket: (await import('../../fixtures/droid-socket.ts')).socketOf(booted, limited),
    })
    expect((await deeper.ask('session_message', { message: 'true' })).error).toMatchObject({
      data: { kind: 'exhausted' },
    })
    deeper.close()
    const { ended } = await booted.ok('session', { action: 'end', session_id, wait_seconds: 30 })
    expect(ended).toHaveLength(3)
    await untilStatus(booted, grandchild, 'completed')
    dialled.close()
  })
})

describe('a key', () => {
  it('ends with its session, also on connections that presented it before', async () => {
    const { call, dialled, session_id, socket } = await orchestrator('admin:ro')
    expect((await call('project_list')).error).toBeUndefined()
    await booted.ok('session', { action: 'end', session_id, wait_seconds: 30 })
    await untilStatus(booted, session_id, 'completed')
    expect((await call('project_list')).error).toMatchObject({ code: -32001 })
    const fresh = await dial(socket)
    const api_key = keyOf(booted, session_id)
    expect((await fresh.ask('hello', { role: 'droid', api_key })).error).toMatchObject({ code: -32001 })
    for (const method of ['oubliette_tools', 'caller_tools'])
      expect((await fresh.ask(method, { api_key })).error).toMatchObject({ code: -32001 })
    fresh.close()
    dialled.close()
  })

  it('ends with the token behind it', async () => {
    const { token, token_id } = await booted.ok('token', { action: 'create', name: 't', scope: 'admin' })
    const client = await connect(booted.server, token)
    const made = await client.call('session', {
      action: 'spawn',
      project_id: home,
      prompt: 'sleep 900',
      new_session: true,
      api_scope: 'admin:ro',
    })
    await client.close()
    const session_id = String(made.structured.session_id)
    await untilStatus(booted, session_id, 'running')
    const { socketOf } = await import('../../fixtures/droid-socket.ts')
    const dialled = await dial(socketOf(booted, home))
    const ask = () => dialled.ask('oubliette_tools', { api_key: keyOf(booted, session_id) })
    expect((await ask()).error).toBeUndefined()
    await booted.ok('token', { action: 'revoke', token_id })
    await until(async () => (await ask()).error?.code === -32001, { what: 'the key is refused' })
    dialled.close()
  })
})

describe('disabled_tools of a project', () => {
  it('are neither listed to its droids nor callable by them', async () => {
    const names = ['token', 'session.spawn', 'oubliette_config_limits', 'app_secret']
    const project_id = await booted.project({ disabled_tools: names, api_scope_grant: 'admin' })
    const caller_tools = ['secret', 'open'].map((name) => ({ name, inputSchema: { type: 'object' } }))
    const one = await droid(booted, project_id, { api_scope: 'admin', caller_id: 'app', caller_tools })
    const dialled = await dialAs(one)
    const listed = (await dialled.ask('oubliette_tools')).result?.tools as Answer[]
    expect(listed.map(({ name }) => name)).not.toContain('token')
    expect(listed.map(({ name }) => name)).not.toContain('config_limits')
    const session = listed.find(({ name }) => name === 'session')
    expect(session?.inputSchema.properties.action.enum).not.toContain('spawn')
    expect(session?.inputSchema.properties.action.enum).toContain('get')
    const { tools } = (await dialled.ask('caller_tools')).result as Answer
    expect(tools.map(({ name }: Answer) => name)).toEqual(['app_open'])
    const call = (tool: string, args = {}) => dialled.ask('oubliette_call_tool', { tool, arguments: args })
    for (const asked of [
      call('token_list'),
      call('token', { action: 'list' }),
      call('session_spawn', { project_id, prompt: 'true' }),
      call('config_limits', { project_id }),
      dialled.ask('caller_tool', { tool: 'app_secret', arguments: {} }),
      dialled.ask('caller_tool', { tool: 'secret', arguments: {} }),
    ])
      expect((await asked).error).toMatchObject({ code: -32002 })
    expect((await call('session_list', { project_id })).error).toBeUndefined()
    const refused = `select tool, action from audit where session_id = $1 and outcome = 'forbidden' order by tool, action`
    const rows = await until(
      async () => {
        const found = await booted.query(refused, [one.session_id])
        return found.length === 6 && found
      },
      { what: 'an audit row of each refused call' },
    )
    expect(rows.map(({ tool, action }: Answer) => `${tool} ${action}`)).toEqual([
      'caller_tool app_secret',
      'caller_tool secret',
      'config_limits config_limits',
      'session spawn',
      'token list',
      'token list',
    ])
    dialled.close()
  })
})

describe('a call that is sent again with its id', () => {
  it('happens once, also when the server was killed in between', async () => {
    const one = await orchestrator('admin')
    const name = uniqueName()
    const [create, say, exec] = [randomUUID(), randomUUID(), randomUUID()]
    const target = await droid(booted, home)
    await booted.exec(home, 'rm -f /tmp/ran')
    const calls: [string, object, string][] = [
      ['project_create', { name }, create],
      ['session_spawn', { project_id: other, prompt: 'true', new_session: true }, say],
      ['session_message', { session_id: target.session_id, message: 'echo said' }, randomUUID()],
      ['container_exec', { project_id: home, command: 'echo x >> /tmp/ran' }, exec],
    ]
    const ask = (by: typeof one.dialled) =>
      Promise.all(
        calls.map(([tool, args, call_id]) =>
          by.ask('oubliette_call_tool', { tool, arguments: args, call_id }),
        ),
      )
    const first = await ask(one.dialled)
    for (const { error } of first) expect(error).toBeUndefined()
    one.dialled.close()
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    const again = await dialAs(one)
    const second = await ask(again)
    expect(second[0]?.result?.project_id).toBe(first[0]?.result?.project_id)
    expect(second[1]?.result?.session_id).toBe(first[1]?.result?.session_id)
    expect(second[2]?.result?.turn_id).toBe(first[2]?.result?.turn_id)
    // A call that cannot be told from a new one is not repeated; the error asks the droid to check.
    expect(second[3]?.error).toMatchObject({ code: -32000, data: { kind: 'conflict' } })
    expect((await booted.exec(home, 'cat /tmp/ran')).stdout).toBe('x\n')
    again.close()
  })

  it('joins the call that still runs when only the connection was lost', async () => {
    const one = await orchestrator('admin')
    const call_id = randomUUID()
    const args = {
      tool: 'container_exec',
      arguments: { project_id: home, command: 'sleep 1; echo $$' },
      call_id,
    }
    void one.dialled.ask('oubliette_call_tool', args)
    await until(
      async () => (await booted.query('select 1 from droid_calls where call_id = $1', [call_id])).length,
      {
        what: 'the call is begun',
      },
    )
    one.dialled.close()
    const again = await dialAs(one)
    expect((await again.ask('oubliette_call_tool', args)).result).toMatchObject({ exit_code: 0 })
    again.close()
  })
})

describe('a shell droid', () => {
  it('uses our tools by name, flat or not, and its children without any scope', async () => {
    const script = [
      `oubliette-client call oubliette_project '{"action":"get","project_id":"${home}"}' | grep -o '"name"' | head -1`,
      `oubliette-client call project_list >/dev/null && echo flat`,
      `oubliette-client call session_message '{"message":"echo child","wait_seconds":30}' | grep -o completed_turn || echo spawned`,
    ].join('; ')
    const { final_text } = await spawn(booted, home, script, { api_scope: `project:${home}` })
    expect(final_text).toContain('"name"')
    expect(final_text).toContain('flat')
    expect(final_text).toContain('spawned')
  })
})
