// Attacks on the boundaries of a project by those who may write to it: a token of the project, and its droids from inside
// the container. The permission matrix has every field with every caller; here are the ways around it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { expectKinds, mint, withKey, withToken } from '../../fixtures/attacks/authority.ts'
import { type Droid, droid } from '../../fixtures/droid-socket.ts'
import { end, spawn } from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, docker, instanceOf, uniqueName } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const credentials = {
  first: { provider: 'git', key: 'first-key' },
  second: { provider: 'git', key: 'second-key' },
}
const bounds = {
  network: 'none',
  limits: { memory_mb: 512, pids: 128, max_active_sessions: 5, max_cost_usd: 5 },
  disabled_tools: ['token', 'image_rebuild'],
  mcp_servers: ['one'],
  credential_refs: ['first'],
  protected_paths: ['.git', 'keys'],
}
const loosening: [string, object][] = [
  ['a wider network', { network: 'internal' }],
  ['an open network', { network: 'open' }],
  ['more memory', { limits: { memory_mb: 1024 } }],
  ['more processes', { limits: { pids: 4096 } }],
  ['more sessions at once', { limits: { max_active_sessions: 6 } }],
  ['more than the default, where the project has no limit of its own', { limits: { cpus: 64 } }],
  ['more money', { limits: { max_cost_usd: 5.01 } }],
  ['no limit of money', { limits: { max_cost_usd: 0 } }],
  ['less of one limit and more of another', { limits: { memory_mb: 256, pids: 129 } }],
  ['fewer disabled tools', { disabled_tools: ['token'] }],
  ['disabled tools under other names', { disabled_tools: ['oubliette_nothing', 'image_rebuild'] }],
  ['another upstream', { mcp_servers: ['one', 'two'] }],
  ['another credential', { credential_refs: ['second'] }],
  ['fewer protected paths', { protected_paths: ['.git'] }],
  ['another image', { image: 'attacker/image:latest' }],
  ['another container type', { container_type: 'dev' }],
  ['a grant', { api_scope_grant: 'admin' }],
  ['a looser field beside a tighter one', { limits: { memory_mb: 128 }, network: 'open' }],
  ['a looser field beside a free one', { description: 'harmless', network: 'open' }],
]

let booted: Booted
let project_id: string
let token: Awaited<ReturnType<typeof withToken>>
let inside: Awaited<ReturnType<typeof withKey>>
let one: Droid

beforeAll(async () => {
  booted = await boot({ config: { log: { level: 'warn' }, credentials } })
  project_id = await booted.project(bounds)
  token = await withToken(booted, (await mint(booted, `project:${project_id}`)).token)
  one = await droid(booted, project_id, { api_scope: `project:${project_id}` })
  inside = await withKey(one)
  // The droid may speak before its workspace is a repository; from then on nothing changes by itself.
  await until(async () => (await shown()).default_workspace.state === 'ready', {
    what: 'the workspace is prepared',
  })
})
afterAll(() => booted?.stop())

/** Without what is measured meanwhile. */
async function shown(id = project_id): Promise<Answer> {
  const { disk: _, ...project } = await booted.ok('project', { action: 'get', project_id: id })
  return project
}
const update = (id: string, change: object) => ({ action: 'update', project_id: id, ...change })

describe('project update, by a token of the project and by its droid,', () => {
  test.each(loosening)('does not give it %s', async (_, change) => {
    const before = await shown()
    expectKinds(
      [
        await token('project', update(project_id, change)),
        await inside('project', update(project_id, change)),
      ],
      'forbidden',
    )
    expect(await shown()).toEqual(before)
    // The control: an admin may do just that, to a project with the same boundaries.
    const twin = await booted.project(bounds)
    const { limits, ...rest } = await booted.ok('project', update(twin, change))
    const { limits: wanted = {}, ...others } = change as { limits?: object }
    expect(rest).toMatchObject(others)
    expect(limits).toMatchObject(wanted)
  })

  test('changes what is free, and tightens what is not', async () => {
    const id = await booted.project(bounds)
    const theirs = await withToken(booted, (await mint(booted, `project:${id}`)).token)
    const tighter = {
      name: uniqueName(),
      description: 'changed',
      model: 'another',
      droid: 'shell',
      workspace_isolation: true,
      limits: { memory_mb: 256, pids: 128, max_cost_usd: 1, cpus: 1 },
      disabled_tools: ['session', 'token', 'image_rebuild'],
      mcp_servers: [],
      credential_refs: [],
      protected_paths: ['.git', 'keys', 'more'],
      network: 'none',
      image: null,
    }
    const { kind, result } = await theirs('project', update(id, tighter))
    expect(kind).toBe('ok')
    expect(result).toMatchObject({ ...tighter, limits: expect.objectContaining(tighter.limits) })
    // And not back again.
    expectKinds([await theirs('project', update(id, { limits: { memory_mb: 512 } }))], 'forbidden')
    expectKinds([await theirs('project', update(id, { credential_refs: ['first'] }))], 'forbidden')
    await theirs.close()
  })

  test('does not undo what an admin tightens at the same moment', { timeout: 60_000 }, async () => {
    for (let round = 0; round < 15; round++) {
      const id = await booted.project({ limits: { memory_mb: 2000 }, network: 'open' })
      const theirs = await withToken(booted, (await mint(booted, `project:${id}`)).token)
      // Each is tighter than what the project has now, and looser than what the admin makes of it.
      const attempts = Array.from({ length: 8 }, (_, n) =>
        theirs('project', update(id, { limits: { memory_mb: 1990 - n }, network: 'internal' })),
      )
      await Promise.all([
        ...attempts,
        booted.ok('project', update(id, { limits: { memory_mb: 128 }, network: 'none' })),
      ])
      const { limits, network } = await shown(id)
      expect([limits.memory_mb, network]).toEqual([128, 'none'])
      await theirs.close()
    }
  })
})

describe('other ways to a looser boundary', () => {
  test('spawn and message take no limits, and a droid gets no disabled tool back by asking for it', async () => {
    for (const action of ['spawn', 'message'])
      for (const extra of [{ limits: { memory_mb: 4096 } }, { network: 'open' }, { disabled_tools: [] }]) {
        const args = { action, project_id, prompt: 'true', message: 'true', ...extra }
        expectKinds([await token('session', args)], 'invalid')
      }
    const spawning = { action: 'spawn', project_id, prompt: 'true', new_session: true }
    expectKinds([await inside('session', { ...spawning, tools_allowed: ['token'] })], 'ok')
    expectKinds([await inside('token_list')], 'forbidden')
  })

  test('container start with recreate makes the container that the admin described', async () => {
    const id = await booted.project(bounds)
    const theirs = await withToken(booted, (await mint(booted, `project:${id}`)).token)
    const limitsOf = async () => {
      const label = [`oubliette.instance=${await instanceOf(booted.server)}`, `oubliette.project=${id}`]
      const [found] = await docker.listContainers({ all: true, filters: { label } })
      const { HostConfig } = await docker.getContainer(found!.Id).inspect()
      return { memory: HostConfig.Memory, pids: HostConfig.PidsLimit, network: HostConfig.NetworkMode }
    }
    const start = { action: 'start', project_id: id, recreate: true }
    expectKinds([await theirs('container', start)], 'ok')
    const before = await limitsOf()
    expect(before).toMatchObject({ memory: 512 * 1024 * 1024, pids: 128, network: 'none' })
    await theirs('project', update(id, { limits: { memory_mb: 4096, pids: 9999 }, network: 'open' }))
    expectKinds([await theirs('container', start)], 'ok')
    expect(await limitsOf()).toEqual(before)
    await booted.ok('project', update(id, { limits: { memory_mb: 600 } }))
    expectKinds([await theirs('container', start)], 'ok')
    expect((await limitsOf()).memory).toBe(600 * 1024 * 1024)
    await theirs.close()
  })

  test('a project of its own, or a recreated one, is refused', async () => {
    const id = await booted.project(bounds)
    const theirs = await withToken(booted, (await mint(booted, `project:${id}`)).token)
    const make = { action: 'create', name: uniqueName(), network: 'open' }
    expectKinds([await theirs('project', make), await inside('project', make)], 'forbidden')
    expectKinds([await theirs('project', { action: 'delete', project_id: id })], 'ok')
    // The token went with its project.
    await expect(theirs('project', make)).rejects.toThrow()
    await booted.ok('project', make)
  })

  test('from inside the container, with the client that every droid has, it is refused as well', async () => {
    const call = (args: object) => `oubliette-client call oubliette_project '${JSON.stringify(args)}'`
    const api_scope = `project:${project_id}`
    const script = (change: object) => call(update(project_id, change))
    const refused = await spawn(booted, project_id, script({ limits: { memory_mb: 4096 } }), { api_scope })
    expect(JSON.parse(String(refused.final_text)).error).toMatchObject({ kind: 'forbidden' })
    const tightened = await spawn(booted, project_id, script({ limits: { memory_mb: 500 } }), { api_scope })
    expect((JSON.parse(String(tightened.final_text)) as Answer).limits.memory_mb).toBe(500)
    await Promise.all([refused, tightened].map(({ session_id }) => end(booted, session_id)))
  })
})

test('config_limits lists who may change what, also to those who may only read', async () => {
  const reader = await withToken(booted, (await mint(booted, `project:${project_id}:ro`)).token)
  const { result } = await reader('config_limits', { project_id })
  expect(result.changeable).toEqual({
    name: 'project',
    description: 'project',
    droid: 'project',
    model: 'project',
    workspace_isolation: 'project',
    image: 'admin',
    container_type: 'admin',
    api_scope_grant: 'admin',
    network: 'tighten',
    limits: 'tighten',
    disabled_tools: 'tighten',
    protected_paths: 'tighten',
    mcp_servers: 'tighten',
    credential_refs: 'tighten',
  })
})
