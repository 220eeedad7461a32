import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Booted, boot, each, inEngine, onDisk } from '../../harness/booted.ts'
import { connect } from '../../harness/client.ts'

let booted: Booted
/** Every table with rows of projects. The audit is not among them: it is the record of what was done. */
let tables: string[]

beforeAll(async () => {
  booted = await boot({ config: { reconcile_seconds: 1 } })
  const found = await booted.query<{ table_name: string }>(
    `select table_name from information_schema.columns
     where table_schema = 'public' and column_name = 'project_id' and table_name <> 'audit'`,
  )
  tables = found.map(({ table_name }) => table_name)
})
afterAll(() => booted?.stop())

async function expectNothingOf(project_id: string): Promise<void> {
  const { containers, networks, volumes } = await inEngine(booted.server)
  expect([...containers, ...networks, ...volumes]).not.toContain(project_id)
  const disk = await onDisk(booted.server)
  expect(disk.projects).not.toContain(project_id)
  expect(disk.sockets).not.toContain(project_id.replaceAll('-', '').slice(0, 16))
  for (const table of tables)
    expect(await booted.query(`select * from ${table} where project_id = $1`, [project_id]), table).toEqual(
      [],
    )
  expect(await booted.query('select * from projects where id = $1', [project_id])).toEqual([])
  expect(await booted.query('select * from tokens where scope like $1', [`%${project_id}%`])).toEqual([])
}

test('a delete leaves nothing in the engine, on the disk or in any table, ends the tokens, and can be repeated', async () => {
  const { ok, fault } = booted
  const project_id = await booted.project({ network: 'internal' })
  const scopes = [`project:${project_id}`, `project:${project_id}:ro`]
  const tokens = await each(scopes, 2, (scope) => ok('token', { action: 'create', name: 'own', scope }))
  const own = await connect(booted.server, tokens[0]!.token)
  await ok('container', { action: 'start', project_id })
  await ok('workspace', { action: 'write_file', project_id, path: 'a/b/c', content: 'x' })
  const engine = await inEngine(booted.server)
  expect(engine.containers).toContain(project_id)
  expect(engine.networks).toContain(project_id)
  expect(tables).toEqual(expect.arrayContaining(['containers', 'workspaces']))

  const first = await ok('project', { action: 'delete', project_id })
  expect(first).toEqual({ project_id, deleted: true, existed: true })
  await expectNothingOf(project_id)
  await expect(own.call('project', { action: 'list' })).rejects.toThrow()
  await own.close().catch(() => undefined)
  const second = await ok('project', { action: 'delete', project_id })
  expect(second).toEqual({ project_id, deleted: true, existed: false })
  expect(await fault('project', { action: 'get', project_id })).toMatchObject({ kind: 'not_found' })
  expect(await fault('container', { action: 'start', project_id })).toMatchObject({ kind: 'not_found' })
})

test('a delete while the container is being started ends both, and leaves nothing', async () => {
  for (let round = 0; round < 6; round++) {
    const project_id = await booted.project({ network: round % 2 ? 'internal' : 'none' })
    const start = () => booted.client().call('container', { action: 'start', project_id })
    const starts = [start(), start(), start()]
    // Each round the start has come further.
    await booted.client().call('container', { action: 'logs', project_id, tail: round })
    await booted.ok('project', { action: 'delete', project_id })
    for (const { is_error, structured } of await Promise.all(starts))
      if (is_error)
        expect(structured.error).toMatchObject({ kind: expect.stringMatching(/^(not_found|conflict)$/) })
    await expectNothingOf(project_id)
  }
})

test('a delete asked for eight times at once succeeds eight times', async () => {
  const project_id = await booted.project({ network: 'internal' })
  await booted.ok('container', { action: 'start', project_id })
  const many = Array.from({ length: 8 }, () => booted.ok('project', { action: 'delete', project_id }))
  for (const answer of await Promise.all(many)) expect(answer.deleted).toBe(true)
  await expectNothingOf(project_id)
})

test('a delete does not wait for a command that runs in the container', async () => {
  const project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
  const running = booted.client().call('container', { action: 'exec', project_id, command: 'sleep 300' })
  const from = performance.now()
  await booted.ok('project', { action: 'delete', project_id })
  expect(performance.now() - from).toBeLessThan(15_000)
  const { is_error, structured } = await running
  if (!is_error) expect(structured.exit_code).not.toBe(0)
  await expectNothingOf(project_id)
})
