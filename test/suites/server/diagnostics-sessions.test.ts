// An operator looks at sessions, their tools and processes, at skills and at usage.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Droid, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { connect, type TestClient } from '../../harness/client.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
let running: Droid
let parent: string
let readOnly: TestClient
let own: TestClient
beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project()
  running = await droid(booted, project_id, {
    prompt: 'sleep 600 & wait',
    api_scope: `project:${project_id}`,
    caller_id: 'app',
    caller_tools: [{ name: 'greet', description: 'Greets.', inputSchema: { type: 'object' } }],
  })
  parent = running.session_id
  const client = async (scope: string) => {
    const { token } = await booted.ok('token', { action: 'create', name: scope.slice(0, 20), scope })
    return await connect(booted.server, token)
  }
  readOnly = await client('admin:ro')
  own = await client(`project:${project_id}`)
})
afterAll(async () => {
  await readOnly?.close()
  await own?.close()
  await booted?.stop()
})

const diagnostics = (action: string, more = {}) => booted.ok('diagnostics', { action, ...more })
/** Work with a connection of the droid. */
async function asDroid<T>(work: (ask: (method: string, params?: object) => Promise<Answer>) => Promise<T>) {
  const dialled = await dialAs(running)
  const ask = async (method: string, params: object = {}) => {
    const { result, error } = await dialled.ask(method, params)
    if (error) throw new Error(error.message)
    return result ?? {}
  }
  return await work(ask).finally(() => dialled.close())
}
const names = (rows: { name: string }[]) => rows.map(({ name }) => name)

test('agents is a tree of live sessions with their last event', async () => {
  const { session_id: child } = await asDroid((ask) => ask('session_message', { message: 'echo child' }))
  const { agents } = await diagnostics('agents', { project_id })
  expect(agents.slice(0, 2)).toMatchObject([
    { session_id: parent, parent_session_id: null, depth: 0, droid: 'shell', status: 'running' },
    { session_id: child, parent_session_id: parent, depth: 1 },
  ])
  expect(agents[0].last_event).toMatchObject({ index: expect.any(Number), type: expect.any(String) })
  expect(agents[0].usage).toEqual({ input_tokens: 0, output_tokens: 0, cost_usd: 0 })
  await booted.ok('session', { action: 'end', session_id: child })
  const after = await diagnostics('agents', { project_id })
  expect(after.agents.map((agent: { session_id: string }) => agent.session_id)).toEqual([parent])
  expect((await diagnostics('agents', { project_id: await booted.project() })).agents).toEqual([])
})

test('agent_state has the processes of the session with their memory, and its journal', async () => {
  const state = await diagnostics('agent_state', { session_id: parent })
  expect(state).toMatchObject({
    session_id: parent,
    status: 'running',
    supervisor: { connected: true, live: true, reason: null },
    queue: { commands: [], turn_id: expect.any(String) },
    pending_requests: [],
  })
  expect(state.journal.supervisor_seq).toBeGreaterThanOrEqual(state.journal.committed_seq)
  const sleeping = state.processes.find(({ command }: { command: string }) => command.includes('sleep 600'))
  expect(sleeping).toMatchObject({ pid: expect.any(Number), cpu_seconds: expect.any(Number) })
  expect(state.process_count).toBe(state.processes.length)
  // A process of the tree is the parent of another one.
  const pids = new Set(state.processes.map(({ pid }: { pid: number }) => pid))
  expect(pids).toContain(sleeping.ppid)
  expect(
    await booted.fault('diagnostics', { action: 'agent_state', session_id: `gogol_${'0'.repeat(20)}` }),
  ).toMatchObject({ kind: 'not_found' })
})

test('agent_state has the requests that the session waits for', async () => {
  await asDroid(async (ask) => {
    const asked = ask('caller_tool', { tool: 'greet', arguments: {}, call_id: 'a-call-id' })
    await until(
      async () => (await diagnostics('agent_state', { session_id: parent })).pending_requests.length === 1,
      { what: 'the request is open' },
    )
    const { pending_requests } = await diagnostics('agent_state', { session_id: parent })
    expect(pending_requests).toMatchObject([{ kind: 'caller_tool', tool: 'app_greet' }])
    const { request_id } = pending_requests[0]
    await booted.ok('caller_tool_response', { session_id: parent, request_id, result: 'hello' })
    await asked
  })
})

describe('tools', () => {
  test('of a session are its own by its scope, and those of its callers', async () => {
    const { tools } = await diagnostics('tools', { session_id: parent })
    const listed = await asDroid(async (ask) => [
      ...names((await ask('oubliette_tools')).tools).map((name) => `oubliette_${name}`),
      ...names((await ask('caller_tools')).tools),
    ])
    expect(names(tools).sort()).toEqual(listed.sort())
    expect(names(tools)).toContain('app_greet')
    expect(names(tools)).not.toContain('oubliette_token')
    expect(tools.find(({ name }: { name: string }) => name === 'app_greet')).toMatchObject({
      source: 'caller',
      caller_id: 'app',
    })
  })

  test('without a session are those of the asking token', async () => {
    const { tools } = await diagnostics('tools')
    const { tools: listed } = await booted.client().client.listTools()
    expect(names(tools)).toEqual(names(listed))
    const reading = (await readOnly.call('diagnostics', { action: 'tools' })).structured as never as {
      tools: { name: string; actions: string[] }[]
    }
    expect(reading.tools.find(({ name }) => name === 'project')?.actions).toEqual(['list', 'get', 'options'])
  })

  test('tool_schema is what tools/list publishes', async () => {
    const { tools } = await booted.client().client.listTools()
    const schema = await diagnostics('tool_schema', { tool: 'workspace' })
    expect(schema.input_schema).toEqual(tools.find(({ name }) => name === 'workspace')?.inputSchema)
    const greet = await diagnostics('tool_schema', { tool: 'app_greet', session_id: parent })
    expect(greet).toMatchObject({
      source: 'caller',
      description: 'Greets.',
      input_schema: { type: 'object' },
    })
    expect(await booted.fault('diagnostics', { action: 'tool_schema', tool: 'nothing' })).toMatchObject({
      kind: 'not_found',
    })
  })

  test('run_tool runs one as the asking token, and the audit has both calls', async () => {
    const args = { action: 'get', project_id }
    const { result } = await diagnostics('run_tool', { tool: 'project', arguments: args })
    expect(result).toEqual(await booted.ok('project', args))
    const flat = await diagnostics('run_tool', { tool: 'oubliette_project_get', arguments: { project_id } })
    expect(flat.result.project_id).toBe(project_id)
    await until(
      async () => {
        const { calls } = await diagnostics('audit', { limit: 50 })
        const outer = calls.find((call: { action: string }) => call.action === 'run_tool')
        const same = calls.filter((call: { request_id: string }) => call.request_id === outer?.request_id)
        return same.some((call: { tool: string; action: string }) => call.action === 'get')
      },
      { what: 'both calls are in the audit' },
    )
  })

  test('run_tool has no more rights than its token', async () => {
    const run = (client: TestClient, tool: string, args: object) =>
      client.call('diagnostics', { action: 'run_tool', tool, arguments: args })
    expect((await run(readOnly, 'project', { action: 'get', project_id })).is_error).toBe(false)
    for (const [tool, args] of [
      ['project', { action: 'create', name: 'no' }],
      ['project', { action: 'delete', project_id }],
      ['oubliette_project_delete', { project_id }],
      ['token', { action: 'list' }],
      ['container', { action: 'exec', project_id, command: 'true' }],
    ] as const)
      expect((await run(readOnly, tool, args)).structured.error).toMatchObject({ kind: 'forbidden' })
    expect((await run(own, 'project', { action: 'get', project_id })).structured.error).toMatchObject({
      kind: 'forbidden',
    })
    expect(await booted.ok('project', { action: 'get', project_id })).toMatchObject({ project_id })
  })

  test.each([
    ['diagnostics', { action: 'run_tool', tool: 'project', arguments: { action: 'list' } }],
    ['oubliette_diagnostics', { action: 'run_tool', tool: 'project', arguments: { action: 'list' } }],
    ['diagnostics_run_tool', { tool: 'project', arguments: { action: 'list' } }],
    ['oubliette_diagnostics_run_tool', { tool: 'diagnostics_run_tool', arguments: { tool: 'project' } }],
  ])('run_tool of %s cannot run itself', async (tool, args) => {
    expect(await booted.fault('diagnostics', { action: 'run_tool', tool, arguments: args })).toMatchObject({
      kind: 'invalid',
      message: 'run_tool cannot be run by run_tool',
    })
  })

  test.each([
    ['app_greet', 'not_found'],
    ['__proto__', 'not_found'],
    ['caller_tool', 'not_found'],
    ['session_stream', 'invalid'],
  ])('run_tool of %s is %s', async (tool, kind) => {
    expect(await booted.fault('diagnostics', { action: 'run_tool', tool, arguments: {} })).toMatchObject({
      kind,
    })
  })
})

describe('skills', () => {
  const skill = (name: string) => `---\nname: ${name}\ndescription: About ${name}.\n---\nText.`

  test('are found in the workspace, the home and the image', async () => {
    const path = '.claude/skills/review/SKILL.md'
    await booted.ok('workspace', { action: 'write_file', project_id, path, content: skill('review') })
    await booted.exec(
      project_id,
      `mkdir -p ~/.codex/skills/deploy && printf '%s' '${skill('deploy')}' > ~/.codex/skills/deploy/SKILL.md`,
    )
    const { skills, image_read, truncated } = await diagnostics('skills', { project_id })
    expect({ image_read, truncated }).toEqual({ image_read: true, truncated: false })
    expect(skills).toEqual([
      {
        name: 'review',
        description: 'About review.',
        source: 'workspace',
        path: `/workspaces/default/${path}`,
      },
      {
        name: 'deploy',
        description: 'About deploy.',
        source: 'home',
        path: '/home/droid/.codex/skills/deploy/SKILL.md',
      },
    ])
  })

  test('links out of the tree, devices, directories and large files are not read', async () => {
    const hostile = await booted.project()
    await booted.exec(
      hostile,
      [
        'mkdir -p .claude/skills/{link,pipe,dir/SKILL.md,large,binary} .agents',
        'ln -s /etc/passwd .claude/skills/link/SKILL.md',
        'ln -s / .agents/skills',
        'mkfifo .claude/skills/pipe/SKILL.md',
        'head -c 100M /dev/zero | tr "\\\\0" a > .claude/skills/large/SKILL.md',
        'head -c 1k /dev/urandom > .claude/skills/binary/SKILL.md',
      ].join(' && '),
      { working_dir: '/workspaces/default' },
    )
    const { skills } = await diagnostics('skills', { project_id: hostile })
    expect(skills).toEqual([
      {
        name: 'large',
        description: '',
        source: 'workspace',
        path: '/workspaces/default/.claude/skills/large/SKILL.md',
      },
    ])
  })

  test('are at most 200', async () => {
    const many = await booted.project()
    await booted.exec(
      many,
      'for n in $(seq 300); do mkdir -p .claude/skills/s$n; echo "---" > .claude/skills/s$n/SKILL.md; done',
      { working_dir: '/workspaces/default' },
    )
    const { skills, truncated } = await diagnostics('skills', { project_id: many })
    expect({ found: skills.length, truncated }).toEqual({ found: 200, truncated: true })
  })
})

describe('usage', () => {
  const day = new Date().toISOString().slice(0, 10)
  let other: string
  beforeAll(async () => {
    other = await booted.project()
    const rows = [
      [project_id, parent, 'model-a', 'now()', 100, 10, 0.5],
      [project_id, parent, 'model-b', 'now()', 10, 1, 0.25],
      [project_id, 'gogol_deleted', 'model-a', `now() - interval '3 days'`, 1000, 100, 4],
      [other, 'gogol_other', 'model-secret', 'now()', 7, 7, 9],
    ]
    for (const [project, session, model, at, input, output, cost] of rows)
      await booted.query(
        `insert into usage select date_trunc('hour', ${at}), $1, $2, $3, 'tok_x', $4, $5, $6`,
        [project, session, model, input, output, cost],
      )
  })

  test('is summed by project, session, model, day and token', async () => {
    const by = async (group_by: string, more = {}) =>
      (await booted.ok('usage', { group_by, project_id, ...more })).usage
    expect(await by('project')).toMatchObject([
      { key: project_id, sessions: 2, input_tokens: 1110, output_tokens: 111, cost_usd: 4.75 },
    ])
    expect(await by('session')).toMatchObject([{ key: 'gogol_deleted' }, { key: parent, cost_usd: 0.75 }])
    expect(await by('model')).toMatchObject([
      { key: 'model-a', cost_usd: 4.5 },
      { key: 'model-b', cost_usd: 0.25 },
    ])
    expect((await by('day'))[0]).toMatchObject({ key: day, cost_usd: 0.75 })
    expect(await by('token')).toMatchObject([{ key: 'tok_x', name: null }])
    const since = new Date(Date.now() - 60_000).toISOString()
    expect(await by('model', { since })).toMatchObject([
      { key: 'model-a', cost_usd: 0.5 },
      { key: 'model-b' },
    ])
    const all = await diagnostics('usage')
    expect(all.total.cost_usd).toBe(13.75)
    expect(all.usage.map(({ key }: { key: string }) => key)).toEqual([other, project_id])
  })

  test('of a project token is that of its project, whatever it asks for', async () => {
    for (const group_by of ['project', 'session', 'model', 'day', 'token']) {
      const { structured, text } = await own.call('usage', { group_by })
      expect((structured.total as { cost_usd: number }).cost_usd).toBe(4.75)
      for (const foreign of [other, 'gogol_other', 'model-secret']) expect(text).not.toContain(foreign)
    }
    expect((await own.call('usage', { project_id: other })).structured.error).toMatchObject({
      kind: 'not_found',
    })
    const tokens = (await own.call('usage', { group_by: 'token' })).structured.usage as { name: unknown }[]
    expect(tokens.map(({ name }) => name)).toEqual([null])
  })
})
