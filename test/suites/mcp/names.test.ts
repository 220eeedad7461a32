// A project by its name, through every door: MCP of both eras, event streams, the socket of a container, schedules, scopes
// and the command line. And for a token that does not see the project, a name that is exactly unknown.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Dialled, dialAs, droid } from '../../fixtures/droid-socket.ts'
import { openStream } from '../../fixtures/event-stream.ts'
import { type Answer, type Booted, boot, each } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { type Era, eras, openSession, resultIn, rpc, send } from '../../harness/rpc.ts'
import { until } from '../../harness/wait.ts'

const name = 'Crème brûlée / 東京: site'
const sibling = 'creme-sibling'
const foreign = 'secret-merger'

let booted: Booted
let project_id: string
let sibling_id: string
let foreign_id: string
/** Of the first project. */
let token: string

beforeAll(async () => {
  booted = await boot({ config: { rate: { per_token_per_second: 10_000, per_token_burst: 10_000 } } })
  project_id = await booted.project({ name })
  sibling_id = await booted.project({ name: sibling })
  foreign_id = await booted.project({ name: foreign })
  token = await tokenOf(`project:${name}`)
})
afterAll(() => booted?.stop())

async function tokenOf(scope: string): Promise<string> {
  return (await booted.ok('token', { action: 'create', name: 'names', scope })).token
}

type Result = { is_error: boolean; structured: Answer }
async function call(bearer: string, tool: string, args: Answer, era: Era = '2026-07-28'): Promise<Result> {
  const session = era === '2025-11-25' ? await openSession(booted.server.url, bearer) : undefined
  const params = { name: tool, arguments: args }
  const reply = await rpc(booted.server.url, bearer, 'tools/call', params, session ? { session } : {})
  const result = resultIn(reply)
  return { is_error: result.isError === true, structured: result.structuredContent as Answer }
}
/** The error without its id, which differs by nature. */
async function errorOf(bearer: string, tool: string, args: Answer): Promise<Answer> {
  const { is_error, structured } = await call(bearer, tool, args)
  expect(is_error).toBe(true)
  const { id: _, ...error } = structured.error
  return error
}

describe('a project is found by its name', () => {
  test.each(eras)('over MCP %s, regardless of case', async (era) => {
    for (const given of [name, name.toUpperCase()])
      expect(
        (await call(token, 'project', { action: 'get', project_id: given }, era)).structured,
      ).toMatchObject({ project_id, name })
  })

  test('in every tool that takes a project', async () => {
    for (const [tool, args] of [
      ['workspace', { action: 'list' }],
      ['workspace', { action: 'write_file', path: 'a.txt', content: 'a' }],
      ['workspace', { action: 'read_file', workspace_id: 'default', path: 'a.txt' }],
      ['project', { action: 'update', description: 'named' }],
      ['config_limits', {}],
      ['project_changes', {}],
      ['session', { action: 'list' }],
      ['session', { action: 'cleanup' }],
      ['schedule', { action: 'list' }],
      ['approval', { action: 'list' }],
      ['container', { action: 'exec', command: 'true' }],
    ] as const) {
      const { is_error, structured } = await call(token, tool, { ...args, project_id: name })
      expect([tool, is_error, structured.error]).toEqual([tool, false, undefined])
    }
    expect((await booted.ok('project', { action: 'get', project_id })).description).toBe('named')
  })

  test('on event streams, where the path may encode it', async () => {
    const spawned = await booted.ok('session', {
      action: 'spawn',
      project_id: name,
      prompt: 'echo streamed',
      wait_seconds: 50,
    })
    expect(spawned).toMatchObject({ project_id, project_name: name })
    const stream = await openStream(booted.server, `/projects/${encodeURIComponent(name)}/events`, token)
    await stream.until(
      (events) => events.some(({ event }) => event === 'completion'),
      'the turn is on the stream',
    )
    stream.close()
    const refused = async (given: string) => {
      const { status, text } = await send(booted.server.url, {
        method: 'GET',
        path: `/projects/${encodeURIComponent(given)}/events`,
        headers: { authorization: `Bearer ${token}` },
      })
      return { status, text: text.replace(given, '…').replace(/"id":"[^"]*"/, '') }
    }
    expect(await refused(foreign)).toMatchObject({ status: 404 })
    expect(await refused(foreign)).toEqual(await refused('secret-nothing'))
  })

  test('in the targets of a schedule, which store the id', async () => {
    const schedule = {
      name: 'named',
      cron_expr: '0 3 1 1 *',
      prompt: 'true',
      targets: [
        { project_id: name },
        { project_id: sibling_id },
        { project_id: sibling.toUpperCase(), workspace_id: 'default' },
      ],
    }
    const made = await booted.ok('schedule', { action: 'create', ...schedule })
    expect(made.targets).toMatchObject([
      { project_id, project_name: name },
      { project_id: sibling_id, project_name: sibling },
      { project_id: sibling_id, workspace_id: 'default' },
    ])
    const same = { ...schedule, targets: [{ project_id }, { project_id: name }] }
    expect((await booted.fault('schedule', { action: 'create', ...same })).message).toContain('listed twice')
    const { runs } = await booted.ok('schedule', { action: 'trigger', schedule_id: made.schedule_id })
    expect(runs[0]).toMatchObject({ project_id, project_name: name })
  })

  test('in scopes, which store the id and keep it when the project is renamed', async () => {
    const made = await booted.ok('token', { action: 'create', name: 'x', scope: `project:${sibling}:ro` })
    expect(made.scope).toBe(`project:${sibling_id}:ro`)
    const granted = await booted.ok('project', {
      action: 'create',
      name: 'granted',
      api_scope_grant: `project:${sibling}`,
    })
    expect(granted.api_scope_grant).toBe(`project:${sibling_id}`)
    const spawn = {
      action: 'spawn',
      project_id: 'granted',
      prompt: 'true',
      api_scope: `project:${sibling}:ro`,
    }
    expect((await booted.ok('session', spawn)).api_scope).toBe(`project:${sibling_id}:ro`)
    await booted.ok('project', { action: 'update', project_id: sibling, name: 'renamed' })
    const seen = await call(made.token, 'project', { action: 'get', project_id: 'renamed' })
    expect(seen.structured).toMatchObject({ project_id: sibling_id })
    expect((await call(made.token, 'project', { action: 'get', project_id: sibling })).is_error).toBe(true)
    await booted.ok('project', { action: 'update', project_id: 'renamed', name: sibling })
  })

  test('a name that ends in :ro is not mistaken for a mode', async () => {
    const odd = await booted.project({ name: 'odd:ro' })
    expect(
      (await booted.ok('token', { action: 'create', name: 'x', scope: 'project:odd:ro:ro' })).scope,
    ).toBe(`project:${odd}:ro`)
    expect((await booted.fault('token', { action: 'create', name: 'x', scope: 'project:odd:ro' })).kind).toBe(
      'not_found',
    )
  })

  test('results follow a rename at once', async () => {
    const fresh = await booted.project({ name: 'before' })
    const { session_id } = await booted.ok('session', {
      action: 'spawn',
      project_id: 'before',
      prompt: 'true',
    })
    await booted.ok('project', { action: 'update', project_id: fresh, name: 'after' })
    expect((await booted.ok('session', { action: 'get', session_id })).project_name).toBe('after')
    expect((await booted.fault('project', { action: 'get', project_id: 'before' })).kind).toBe('not_found')
    expect((await booted.ok('project', { action: 'delete', project_id: 'after' })).project_id).toBe(fresh)
    // The name is free again, and the new project is another one.
    expect(await booted.project({ name: 'after' })).not.toBe(fresh)
  })

  test('a repeated call with the same key is the same call by id and by name', async () => {
    const spawn = { action: 'spawn', prompt: 'true', new_session: true, idempotency_key: 'one' }
    const first = await booted.ok('session', { ...spawn, project_id })
    expect((await booted.ok('session', { ...spawn, project_id: name })).session_id).toBe(first.session_id)
    const create = { action: 'create', name: 'keyed', idempotency_key: 'two' }
    const made = await booted.ok('project', { ...create, api_scope_grant: `project:${sibling_id}` })
    expect(
      (await booted.ok('project', { ...create, api_scope_grant: `project:${sibling}` })).project_id,
    ).toBe(made.project_id)
  })

  test('the audit records the id', async () => {
    const made = await booted.ok('token', { action: 'create', name: 'audited', scope: 'admin:ro' })
    await call(made.token, 'project', { action: 'get', project_id: name })
    const rows = await until(
      async () => {
        const found = await booted.query<{ project_id: string }>(
          'select project_id, outcome from audit where token_id = $1',
          [made.token_id],
        )
        return found.length > 0 && found
      },
      { what: 'the call is in the audit' },
    )
    expect(rows).toEqual([{ project_id, outcome: 'ok' }])
  })
})

describe('over the socket of a container', () => {
  let dialled: Dialled
  beforeAll(async () => {
    dialled = await dialAs(await droid(booted, project_id, { api_scope: `project:${name}` }))
  })
  afterAll(() => dialled?.close())

  test('a droid names its project', async () => {
    const args = { action: 'get', project_id: name }
    const answer = await dialled.ask('oubliette_call_tool', { tool: 'project', arguments: args })
    expect(answer.result).toMatchObject({ project_id })
  })

  test('a child gets a scope by name, within that of its parent', async () => {
    const child = { message: 'true', wait_seconds: 30, api_scope: `project:${name}:ro` }
    const { result } = await dialled.ask('session_message', child)
    expect(result).toMatchObject({ api_scope: `project:${project_id}:ro` })
    const refused = async (other: string) => {
      const { error } = await dialled.ask('session_message', {
        message: 'true',
        api_scope: `project:${other}`,
      })
      return { code: error?.code, message: error?.message.replace(other, '…'), hint: error?.data?.hint }
    }
    expect(await refused(foreign)).toMatchObject({ code: -32000, message: 'no project "…"' })
    expect(await refused(foreign)).toEqual(await refused('secret-nothing'))
  })
})

describe('the command line', () => {
  const cli = (...words: string[]) =>
    runCli(words, {
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
    })

  test('takes names', async () => {
    expect((await cli('project', 'get', name, '-q')).stdout).toBe(`${project_id}\n`)
    const { stdout } = await cli('token', 'create', 'by-cli', '--scope', `project:${sibling}`, '--json')
    expect(JSON.parse(stdout).scope).toBe(`project:${sibling_id}`)
    expect((await cli('container', 'exec', name, 'echo in $PWD')).stdout).toContain('in /')
    expect((await cli('run', '--project', name, 'echo ran by name')).stdout).toContain('ran by name')
  })

  test('names what is similar', async () => {
    const { code, stderr } = await cli('project', 'get', 'secret-merge')
    expect([code, stderr]).toEqual([
      1,
      `oubliette: no project "secret-merge"\n  did you mean "${foreign}"?\n`,
    ])
    const short = await cli('project', 'get', foreign_id.slice(0, 8))
    expect(short.stderr).toContain(`an id must be complete; did you mean "${foreign}"?`)
  })
})

describe('an unknown name', () => {
  test('lists similar names to an admin', async () => {
    const { kind, message, hint } = await booted.fault('project', {
      action: 'get',
      project_id: 'Secret-Mergr',
    })
    expect({ kind, message, hint }).toEqual({
      kind: 'not_found',
      message: 'no project "Secret-Mergr"',
      hint: `did you mean "${foreign}"?`,
    })
    const workspace = { action: 'read_file', project_id, workspace_id: 'defalt', path: 'a.txt' }
    expect(await booted.fault('workspace', workspace)).toMatchObject({
      kind: 'not_found',
      message: 'no workspace defalt',
      hint: 'did you mean "default"?',
    })
  })

  test('is refused where it looks like an id of another kind', async () => {
    for (const given of [
      'gogol_0123456789abcdef0123',
      'tok_0123456789abcdef0123',
      project_id.toUpperCase(),
      'xyz_0123456789abcdef0123',
      ' padded',
      'two\nlines',
      'x'.repeat(101),
    ]) {
      expect((await booted.fault('project', { action: 'get', project_id: given })).kind).toBe('invalid')
      expect((await booted.fault('project', { action: 'create', name: given })).kind).toBe('invalid')
      expect(
        (await booted.fault('token', { action: 'create', name: 'x', scope: `project:${given}` })).kind,
      ).toBe('invalid')
    }
    expect(
      (await booted.fault('project', { action: 'update', project_id, name: foreign_id })).message,
    ).toContain('looks like an id')
  })

  test('costs a bounded amount among 10,000 projects', async () => {
    await booted.query(`
      with made as (
        insert into projects (id, name, description, container_type, network, init_git, workspace_isolation,
          protected_paths, limits, disabled_tools, mcp_servers, credential_refs, created_by, created_at, updated_at)
        select gen_random_uuid(), 'bulk-' || md5(n::text), '', 'base', 'none', true, false,
          '[]', '{}', '[]', '[]', '[]', 'test', now(), now()
        from generate_series(1, 10000) n returning id
      ) insert into containers (project_id, wanted, status) select id, 'stopped', 'absent' from made`)
    try {
      const typo = { action: 'get', project_id: 'secret-mergre' }
      expect((await booted.fault('project', typo)).hint).toContain(foreign)
      const started_ms = performance.now()
      await each(
        Array.from({ length: 200 }, (_, n) => `bulk-${n}-${'z'.repeat(80)}`),
        20,
        async (given) => {
          const { hint = '' } = await booted.fault('project', { action: 'get', project_id: given })
          expect(hint.length).toBeLessThan(400)
        },
      )
      const each_ms = (performance.now() - started_ms) / 200
      console.log(`an unknown name among 10,000 projects: ${each_ms.toFixed(1)} ms`)
      expect(each_ms).toBeLessThan(200)
    } finally {
      await booted.query(`delete from projects where name like 'bulk-%'`)
    }
  })
})

describe('a token of another project', () => {
  const unknown = 'secret-nothing'
  const calls: [string, Answer][] = [
    ['project', { action: 'get' }],
    ['project', { action: 'update', description: 'x' }],
    ['project', { action: 'delete' }],
    ['container', { action: 'exec', command: 'true' }],
    ['container', { action: 'logs' }],
    ['workspace', { action: 'list' }],
    ['workspace', { action: 'write_file', path: 'x', content: 'x' }],
    ['session', { action: 'spawn', prompt: 'true' }],
    ['session', { action: 'message', message: 'true' }],
    ['session', { action: 'list' }],
    ['session', { action: 'cleanup' }],
    ['schedule', { action: 'list' }],
    ['approval', { action: 'list' }],
    ['config_limits', {}],
    ['project_tasks', {}],
  ]

  test.each(calls)('gets the answer of an unknown name from %s %o', async (tool, args) => {
    const answered = async (given: string) => {
      const error = await errorOf(token, tool, { ...args, project_id: given })
      return JSON.parse(JSON.stringify(error).replaceAll(given, '…'))
    }
    expect(await answered(unknown)).toEqual({ kind: 'not_found', message: 'no project "…"' })
    for (const given of [foreign, foreign.toUpperCase(), foreign.slice(0, -1), sibling])
      expect(await answered(given)).toEqual(await answered(unknown))
  })

  test('gets it for targets and scopes too', async () => {
    const schedule = { action: 'create', name: 'x', cron_expr: '@daily', prompt: 'true' }
    const spawn = { action: 'spawn', project_id: name, prompt: 'true' }
    for (const [tool, args] of [
      [
        'schedule',
        (given: string) => ({ ...schedule, targets: [{ project_id: name }, { project_id: given }] }),
      ],
      ['session', (given: string) => ({ ...spawn, api_scope: `project:${given}` })],
      ['session', (given: string) => ({ ...spawn, api_scope: `project:${given}:ro` })],
      [
        'project',
        (given: string) => ({ action: 'update', project_id: name, api_scope_grant: `project:${given}` }),
      ],
    ] as const) {
      const error = await errorOf(token, tool, args(foreign))
      expect(error).toEqual({ kind: 'not_found', message: `no project "${foreign}"` })
      expect((await errorOf(token, tool, args(unknown))).message).toBe(`no project "${unknown}"`)
    }
  })

  test('is told of its own project only', async () => {
    const { hint } = await errorOf(token, 'project', { action: 'get', project_id: name.slice(0, -1) })
    expect(hint).toBe(`did you mean "${name}"?`)
    // A control: an admin is told of the foreign one.
    const typo = { action: 'get', project_id: foreign.slice(0, -1) }
    expect((await booted.fault('project', typo)).hint).toContain(foreign)
    expect(await errorOf(token, 'project', typo)).not.toHaveProperty('hint')
  })

  test('finds out nothing by guessing many names at once', async () => {
    const guesses = Array.from({ length: 300 }, (_, n) => (n % 3 === 0 ? foreign : `guess-${n}`))
    const errors = await each(guesses, 20, (given) =>
      errorOf(token, 'project', { action: 'get', project_id: given }),
    )
    const shapes = new Set(errors.map((error, at) => JSON.stringify(error).replaceAll(guesses[at]!, '…')))
    expect(shapes.size).toBe(1)
  })
})
