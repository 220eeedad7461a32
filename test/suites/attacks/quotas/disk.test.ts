// What a project takes on the disk is bounded: one that exceeds it is stopped with a clear state and can recover, and
// others do not notice.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { get, say, spawn, untilStatus } from '../../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, containerOf } from '../../../harness/booted.ts'
import { until } from '../../../harness/wait.ts'

const limit_mb = 64
let booted: Booted
let neighbour: string

beforeAll(async () => {
  booted = await boot({ config: { limits: { max_spawns_per_minute: 1000 } } })
  neighbour = await booted.project()
  await booted.ok('container', { action: 'start', project_id: neighbour })
})
afterAll(() => booted?.stop())

const limited = async (fields: object = {}): Promise<string> => {
  const project_id = await booted.project({ limits: { disk_mb: limit_mb }, ...fields })
  await booted.ok('container', { action: 'start', project_id })
  return project_id
}
const look = (project_id: string): Promise<Answer> => booted.ok('project', { action: 'get', project_id })
const untilOver = (project_id: string, over = true) =>
  until(
    async () => {
      const { disk, container } = await look(project_id)
      return disk.over === over && (!over || container.wanted === 'stopped') && disk
    },
    { what: `project ${project_id} is ${over ? 'over' : 'below'} its limit`, deadline_ms: 30_000 },
  )
const stopped = async (project_id: string) => {
  const container = await containerOf(booted.server, project_id)
  await until(async () => !(await container.inspect()).State.Running, { what: 'the container is stopped' })
}
/** Whether it is cut off in the middle does not matter. */
const write = (project_id: string, command: string) =>
  booted.client().call('container', { action: 'exec', project_id, command, timeout_seconds: 60 })
const files = (count: number, megabytes: number) =>
  `for i in $(seq ${count}); do head -c ${megabytes}M /dev/zero > f$i; done`
const alive = async () => expect((await booted.exec(neighbour, 'echo here')).stdout).toBe('here\n')

test('no single file grows beyond the limit', async () => {
  const project_id = await limited()
  expect(await booted.exec(project_id, 'head -c 30M /dev/zero > fits')).toMatchObject({ exit_code: 0 })
  const { exit_code, stderr } = await booted.exec(project_id, 'rm fits; head -c 300M /dev/zero > big')
  expect(exit_code).not.toBe(0)
  expect(stderr).toMatch(/file too large|File size limit/i)
  const path = join(booted.server.home, 'projects', project_id, 'workspaces/default/big')
  expect((await readFile(path)).length).toBeLessThanOrEqual(limit_mb * 1024 * 1024)
})

describe('a project whose session writes too much', () => {
  let project_id: string
  let session_id: string
  let reason: string

  beforeAll(async () => {
    project_id = await limited()
    session_id = (await spawn(booted, project_id, `${files(9, 20)}; sleep 900`, { wait_seconds: 0 }))
      .session_id
    reason = String((await untilStatus(booted, session_id, 'failed')).reason)
  })

  test('is stopped, its sessions fail with the reason, and others continue', async () => {
    expect(reason).toMatch(/^the project uses [\d,]+ MiB of disk, the limit is 64 MiB \(limits\.disk_mb\)$/)
    await stopped(project_id)
    const { disk, container } = await until(
      async () => {
        const seen = await look(project_id)
        return seen.container.reason === reason && seen
      },
      { what: 'the row says why it is stopped' },
    )
    expect(disk).toMatchObject({ limit_mb, over: true, measured_at: expect.any(String) })
    expect(disk.used_mb).toBeGreaterThan(limit_mb)
    expect(container).toMatchObject({ wanted: 'stopped', status: 'stopped' })
    await alive()
  })
  test('gets no session, message, file or workspace', async () => {
    const refused = [
      ['session', { action: 'spawn', project_id, prompt: 'true', new_session: true }],
      ['session', { action: 'message', session_id, message: 'true' }],
      ['workspace', { action: 'write_file', project_id, path: 'more', content: 'x' }],
      ['session', { action: 'spawn', project_id, prompt: 'true', create_workspace: true }],
    ] as const
    for (const [tool, args] of refused)
      expect(await booted.fault(tool, args)).toMatchObject({
        kind: 'exhausted',
        message: expect.stringContaining('limits.disk_mb'),
        hint: expect.any(String),
      })
    const written = { action: 'write_file', project_id: neighbour, path: 'more', content: 'x' }
    expect(await booted.ok('workspace', written)).toMatchObject({ created: true })
  })
  test('is still over after the server was killed', async () => {
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect((await look(project_id)).disk.over).toBe(true)
    expect(await booted.fault('session', { action: 'message', session_id, message: 'true' })).toMatchObject({
      kind: 'exhausted',
    })
    await alive()
  })
  test('may start its container to clean up, and is free again by itself', async () => {
    await booted.ok('container', { action: 'start', project_id })
    await booted.exec(project_id, 'rm -f f*')
    await untilOver(project_id, false)
    await say(booted, session_id, 'echo again')
    expect(await get(booted, session_id)).toMatchObject({ status: 'idle' })
  })
  test('is free again at once when an admin raises the limit', async () => {
    await write(project_id, files(5, 20))
    await untilOver(project_id)
    await booted.ok('project', { action: 'update', project_id, limits: { disk_mb: 1000 } })
    expect(await spawn(booted, project_id, 'echo raised')).toMatchObject({ finished: true })
    expect((await look(project_id)).disk).toMatchObject({ over: false, limit_mb: 1000 })
  })
})

test.each([
  ['many small files', 'mkdir s; cd s; seq 4000 | split -l 1 -a 4 -'],
  ['many empty files', 'mkdir e; cd e; seq 4000 | xargs touch'],
  ['files in the home', `cd; ${files(5, 5)}`],
  [
    'files of which nothing else is seen',
    'mkdir -p a/.b/c; cd a/.b/c; for i in 1 2 3 4 5; do head -c 5M /dev/zero > $i; done',
  ],
])('a project is stopped by %s, written by exec', async (_, command) => {
  const project_id = await limited({ limits: { disk_mb: 16 } })
  const before = (await look(project_id)).disk
  expect(before.over).toBe(false)
  await write(project_id, command)
  await untilOver(project_id)
  await stopped(project_id)
  await alive()
  await booted.ok('project', { action: 'delete', project_id })
})

test('what is written beside the mounts counts where the root is writable', async () => {
  const { container_id } = (await look(neighbour)).container
  const { Image } = await (await containerOf(booted.server, neighbour)).inspect()
  expect(container_id).toBeTruthy()
  const project_id = await limited({ image: Image })
  const { exit_code } = await booted.exec(project_id, `cd /var/tmp && ${files(2, 20)}`)
  expect(exit_code).toBe(0)
  await write(project_id, `cd /var/tmp && mkdir more && cd more && ${files(3, 20)}`)
  await untilOver(project_id)
  await booted.ok('project', { action: 'delete', project_id })
})

test('files written by the workspace tool count, also without a container', async () => {
  const project_id = await booted.project({ limits: { disk_mb: 16 } })
  const content = 'x'.repeat(3_400_000)
  const at = (n: number) => ({ action: 'write_file', project_id, path: `f${n}`, content })
  for (let n = 0; n < 5; n++) await booted.ok('workspace', at(n))
  await untilOver(project_id)
  expect(await booted.fault('workspace', at(9))).toMatchObject({ kind: 'exhausted' })
})

test('a project that writes on after its limit was lifted is stopped, and recovers by deleting a workspace', async () => {
  const project_id = await limited()
  await spawn(booted, project_id, 'true', { workspace_id: 'extra', create_workspace: true })
  await write(project_id, `cd /workspaces/extra && ${files(5, 20)}`)
  await untilOver(project_id)
  await stopped(project_id)
  await booted.ok('container', { action: 'start', project_id })
  await write(project_id, `cd /workspaces/extra && mkdir more && cd more && ${files(20, 20)}`)
  await stopped(project_id)
  await until(async () => (await look(project_id)).disk.used_mb > 300, { what: 'it is measured' })
  expect(await booted.fault('container', { action: 'start', project_id })).toMatchObject({
    kind: 'exhausted',
    hint: expect.stringContaining('delete a workspace'),
  })
  await booted.ok('session', { action: 'cleanup', project_id, max_age_hours: 0 })
  await booted.ok('workspace', { action: 'delete', project_id, workspace_id: 'extra' })
  expect((await look(project_id)).disk.over).toBe(false)
  await booted.ok('container', { action: 'start', project_id })
  expect(await spawn(booted, project_id, 'echo back')).toMatchObject({ finished: true })
})

test('a stop that a crash cut short is finished', async () => {
  const project_id = await limited()
  const { session_id } = await spawn(booted, project_id, 'sleep 900', { wait_seconds: 0 })
  await untilStatus(booted, session_id, 'running')
  await booted.server.kill('SIGKILL')
  await booted.query(
    `update containers set disk_state = 'stopping', disk_used_bytes = 1e9 where project_id = $1`,
    [project_id],
  )
  await booted.server.restart()
  await booted.reconnect()
  await stopped(project_id)
  expect(await untilStatus(booted, session_id, 'failed')).toMatchObject({
    reason: expect.stringContaining('limits.disk_mb'),
  })
  // Nothing was too much after all.
  await untilOver(project_id, false)
})

test('nothing is started while the disk of the server is nearly full', async () => {
  const project_id = await booted.project()
  const file = join(booted.server.home, 'oubliette.jsonc')
  const before = await readFile(file, 'utf8')
  await writeFile(file, JSON.stringify({ ...JSON.parse(before), min_free_disk_mb: 1_000_000_000 }))
  await booted.server.restart()
  await booted.reconnect()
  for (const [tool, args] of [
    ['session', { action: 'spawn', project_id, prompt: 'true' }],
    ['container', { action: 'start', project_id }],
  ] as const)
    await until(async () => (await booted.fault(tool, args)).message.includes('min_free_disk_mb'), {
      what: `${tool} is refused`,
    })
  await alive()
  await writeFile(file, before)
  await booted.server.restart()
  await booted.reconnect()
  await booted.ok('container', { action: 'start', project_id })
})
