import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot, inEngine, onDisk, uniqueName } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'

let booted: Booted
beforeAll(async () => {
  booted = await boot({
    config: {
      limits: { memory_mb: 256, pids: 99 },
      models: ['model-a'],
      droids: { mine: { kind: 'acp', command: 'mine' } },
      credentials: { forge: { provider: 'git', key: 'a-secret-of-the-config' } },
    },
  })
})
afterAll(() => booted?.stop())

const create = (fields: Record<string, unknown> = {}) =>
  booted.ok('project', { action: 'create', name: uniqueName(), ...fields })

describe('create', () => {
  test('answers with the whole project, and get and list show the same', async () => {
    const { ok } = booted
    const made = await create({ description: 'for a test', model: 'model-a', protected_paths: ['a/b'] })
    expect(made).toMatchObject({
      description: 'for a test',
      container_type: 'base',
      image: null,
      droid: 'shell',
      model: 'model-a',
      network: 'open',
      init_git: true,
      protected_paths: ['a/b'],
      default_workspace_id: 'default',
      container: { wanted: 'stopped', status: 'absent', reason: null, container_id: null },
    })
    expect(await ok('project', { action: 'get', project_id: made.project_id })).toEqual(made)
    const { projects } = await ok('project', { action: 'list', name_contains: made.name })
    expect(projects).toEqual([made])
  })

  test('makes nothing in the engine, and a default workspace on the disk', async () => {
    const { project_id } = await create()
    expect((await inEngine(booted.server)).containers).not.toContain(project_id)
    const path = join(booted.server.home, 'projects', project_id, 'workspaces', 'default')
    expect((await stat(path)).isDirectory()).toBe(true)
  })

  test('refuses a name that is taken, in any case, and leaves nothing of the second', async () => {
    const { name } = await create({ name: `Taken-${uniqueName()}` })
    const before = await onDisk(booted.server)
    const fault = await booted.fault('project', { action: 'create', name: name.toUpperCase() })
    expect(fault).toMatchObject({ kind: 'conflict', message: expect.stringContaining(name.toUpperCase()) })
    expect(await onDisk(booted.server)).toEqual(before)
  })

  test.each([
    [{ droid: 'nobody' }, 'no droid "nobody"', 'mine'],
    [{ container_type: 'nothing' }, 'no container type "nothing"', 'base'],
    [{ credential_refs: ['forge', 'none'] }, 'no credential "none"', 'config'],
    [{ remote_url: 'ssh://git@example.org/a.git', network: 'none' }, 'network none', 'open'],
    [{ remote_url: 'ssh://git@example.org/a.git', credential_refs: ['forge'] }, 'ssh', 'https'],
    [{ remote_url: 'https://example.org/a.git?x=1' }, 'remote_url', ''],
    [{ remote_url: 'https://me:hunter2@example.org/a.git' }, 'credential_refs', ''],
    [{ remote_url: 'file:///etc' }, 'remote_url', ''],
    [{ remote_url: 'ext::sh -c true' }, 'remote_url', ''],
    [{ protected_paths: ['../up'] }, 'protected_paths', ''],
    [{ limits: { memory: 5 } }, 'limits.memory', ''],
    [{ limits: { memory_mb: 1 } }, 'limits.memory_mb', ''],
    [{ network: 'host' }, 'network', ''],
    [{ nonsense: 1 }, 'nonsense', 'name'],
  ])('refuses %j with a sentence that names it', async (fields, said, hinted) => {
    const fault = await booted.fault('project', { action: 'create', name: uniqueName(), ...fields })
    expect(fault.kind).toBe('invalid')
    expect(fault.message).toContain(said)
    expect(fault.hint ?? '').toContain(hinted)
    expect(JSON.stringify(fault)).not.toContain('hunter2')
  })
})

describe('an idempotency key', () => {
  test('gives the same project to the same request', async () => {
    const request = { name: uniqueName(), idempotency_key: uniqueName(), limits: { pids: 50, cpus: 1 } }
    const first = await create(request)
    expect(await create({ ...request, limits: { cpus: 1, pids: 50 } })).toEqual(first)
  })

  test('refuses a different request', async () => {
    const request = { name: uniqueName(), idempotency_key: uniqueName() }
    await create(request)
    const fault = await booted.fault('project', { action: 'create', ...request, description: 'another' })
    expect(fault).toMatchObject({ kind: 'conflict', message: expect.stringContaining('idempotency_key') })
  })

  test('makes one project of many requests at the same moment', async () => {
    const request = { name: uniqueName(), idempotency_key: uniqueName() }
    const made = await Promise.all(Array.from({ length: 10 }, () => create(request)))
    expect(new Set(made.map(({ project_id }) => project_id)).size).toBe(1)
    const { projects } = await booted.ok('project', { action: 'list', name_contains: request.name })
    expect(projects).toHaveLength(1)
    expect((await onDisk(booted.server)).projects).toHaveLength(
      (await booted.query('select id from projects')).length,
    )
  })

  test('is free again when its project is deleted', async () => {
    const request = { name: uniqueName(), idempotency_key: uniqueName() }
    const { project_id } = await create(request)
    await booted.ok('project', { action: 'delete', project_id })
    expect((await create(request)).project_id).not.toBe(project_id)
  })

  test('belongs to the caller: another one may use the same', async () => {
    const { token } = await booted.ok('token', { action: 'create', name: 'second', scope: 'admin' })
    const second = await connect(booted.server, token)
    const idempotency_key = uniqueName()
    const first = await create({ idempotency_key })
    const other = await second.call('project', { action: 'create', name: uniqueName(), idempotency_key })
    await second.close()
    expect(other.is_error).toBe(false)
    expect(other.structured.project_id).not.toBe(first.project_id)
  })
})

describe('list', () => {
  test('pages through all of them, oldest first, none twice and none missing', async () => {
    const mark = uniqueName()
    const made = []
    for (let index = 0; index < 7; index++) made.push((await create({ name: `${mark}-${index}` })).name)
    const seen: string[] = []
    let cursor: string | null = null
    let pages = 0
    do {
      const page: Record<string, unknown> = { action: 'list', name_contains: mark, limit: 3 }
      const answer = await booted.ok('project', cursor ? { ...page, cursor } : page)
      seen.push(...answer.projects.map((project: { name: string }) => project.name))
      cursor = answer.next_cursor
      pages++
    } while (cursor !== null)
    expect(seen).toEqual(made)
    expect(pages).toBe(3)
  })

  test('takes % and _ and \\ in name_contains as themselves', async () => {
    const mark = uniqueName()
    const names = ['100%', 'under_score', 'back\\slash', 'plain']
    for (const name of names) await create({ name: `${mark} ${name}` })
    const found = async (text: string) =>
      (await booted.ok('project', { action: 'list', name_contains: `${mark} ${text}` })).projects.map(
        (project: { name: string }) => project.name.slice(mark.length + 1),
      )
    expect(await found('100%')).toEqual(['100%'])
    expect(await found('%')).toEqual([])
    expect(await found('under_')).toEqual(['under_score'])
    expect(await found('underX')).toEqual([])
    expect(await found('_____')).toEqual([])
    expect(await found('back\\')).toEqual(['back\\slash'])
    expect(await found('PLAIN')).toEqual(['plain'])
  })

  test('refuses a cursor that is not one', async () => {
    const fault = await booted.fault('project', { action: 'list', cursor: 'nonsense' })
    expect(fault).toMatchObject({ kind: 'invalid', message: expect.stringContaining('cursor') })
  })

  test('shows to a token of one project that project alone', async () => {
    const { project_id } = await create()
    await create()
    const { token } = await booted.ok('token', {
      action: 'create',
      name: 'own',
      scope: `project:${project_id}:ro`,
    })
    const own = await connect(booted.server, token)
    const { structured } = await own.call('project', { action: 'list' })
    await own.close()
    const projects = structured.projects as { project_id: string }[]
    expect(projects.map((project) => project.project_id)).toEqual([project_id])
  })
})

describe('limits', () => {
  test("are the config's, except those that the project names, also after an update", async () => {
    const { ok } = booted
    const { project_id, limits } = await create({ limits: { cpus: 0.5 } })
    expect(limits).toMatchObject({ memory_mb: 256, pids: 99, cpus: 0.5, max_recursion_depth: 3 })
    const updated = await ok('project', { action: 'update', project_id, limits: { memory_mb: 128 } })
    expect(updated.limits).toMatchObject({ memory_mb: 128, pids: 99, cpus: 0.5 })
    expect((await ok('config_limits', { project_id })).limits).toEqual(updated.limits)
  })
})

describe('update', () => {
  test('changes what it names and leaves the rest', async () => {
    const before = await create({ description: 'old', model: 'model-a', disabled_tools: ['x'] })
    const { project_id } = before
    const name = uniqueName()
    const after = await booted.ok('project', { action: 'update', project_id, name, description: 'new' })
    expect(after).toMatchObject({ name, description: 'new', model: 'model-a', disabled_tools: ['x'] })
    expect(after.updated_at > before.updated_at).toBe(true)
    const cleared = await booted.ok('project', {
      action: 'update',
      project_id,
      model: null,
      disabled_tools: [],
    })
    expect(cleared).toMatchObject({ name, model: null, disabled_tools: [] })
  })

  test('refuses the name of another project, an unknown droid and an unknown project', async () => {
    const [{ name }, { project_id }] = [await create(), await create()]
    const update = { action: 'update', project_id }
    expect(await booted.fault('project', { ...update, name })).toMatchObject({ kind: 'conflict' })
    expect(await booted.fault('project', { ...update, droid: 'nobody' })).toMatchObject({ kind: 'invalid' })
    const nobody = { action: 'update', project_id: '00000000-0000-4000-8000-000000000000', description: '' }
    expect(await booted.fault('project', nobody)).toMatchObject({ kind: 'not_found' })
  })
})

test('options names everything that can be chosen, and credentials only by name', async () => {
  const options = await booted.ok('project', { action: 'options' })
  expect(options).toMatchObject({
    models: ['model-a'],
    credentials: [{ name: 'forge', provider: 'git' }],
    networks: ['none', 'internal', 'open'],
  })
  expect(options.droids).toEqual(
    expect.arrayContaining([
      { name: 'shell', kind: 'shell', is_default: true },
      { name: 'mine', kind: 'acp', is_default: false },
      expect.objectContaining({ name: 'claude', container_type: 'claude' }),
    ]),
  )
  expect(options.container_types).toContainEqual(
    expect.objectContaining({ type: 'base', built: true, is_default: true }),
  )
  expect(JSON.stringify(options)).not.toContain('a-secret-of-the-config')
})
