import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type Docker from 'dockerode'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot, containerOf, docker, inEngine, instanceOf, onDisk } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
const foreign: { remove(options?: object): Promise<unknown> }[] = []

beforeAll(async () => {
  booted = await boot({ config: { reconcile_seconds: 1, shutdown_seconds: 5 } })
})
afterAll(async () => {
  for (const thing of foreign) await thing.remove({ force: true }).catch(() => undefined)
  await booted?.stop()
})

const start = (project_id: string) => booted.ok('container', { action: 'start', project_id })
const get = async (project_id: string) =>
  (await booted.ok('project', { action: 'get', project_id })).container

async function started(fields = {}): Promise<{ project_id: string; container_id: string }> {
  const project_id = await booted.project(fields)
  const { container_id } = await start(project_id)
  return { project_id, container_id }
}

const isRunning = async (project_id: string): Promise<Docker.ContainerInspectInfo | undefined> => {
  const info = await (await containerOf(booted.server, project_id)).inspect()
  return info.State.Running ? info : undefined
}

describe('a container that is wanted', () => {
  test('is recreated when it was removed outside Oubliette, with its workspace', async () => {
    const { project_id, container_id } = await started({ network: 'internal' })
    await booted.exec(project_id, 'echo kept > file')
    await docker.getContainer(container_id).remove({ force: true })
    const { Id } = await until(() => isRunning(project_id), { what: 'it runs again', deadline_ms: 20_000 })
    expect(Id).not.toBe(container_id)
    await until(async () => (await get(project_id)).container_id === Id, { what: 'the row knows it' })
    expect(await get(project_id)).toMatchObject({ wanted: 'running', status: 'running', reason: null })
    expect((await booted.exec(project_id, 'cat file')).stdout).toBe('kept\n')
  })

  test('is started again when it was stopped outside Oubliette, or ended by itself', async () => {
    const { project_id, container_id } = await started()
    const since = async () => (await isRunning(project_id))?.State.StartedAt
    for (const end of [
      () => docker.getContainer(container_id).stop({ t: 0 }),
      () => docker.getContainer(container_id).kill(),
      () => booted.client().call('container', { action: 'exec', project_id, command: 'kill -9 -1' }),
    ]) {
      const before = await since()
      await end()
      const again = async () => {
        const now = await since()
        return now !== undefined && now !== before
      }
      await until(again, { what: 'it runs again', deadline_ms: 20_000 })
    }
    await until(async () => (await get(project_id)).status === 'running', { what: 'the row says so' })
    expect((await booted.exec(project_id, 'echo ok')).stdout).toBe('ok\n')
  })

  test('that cannot run is given up after some tries with the reason, and can be repaired', async () => {
    const empty = await mkdtemp(join(tmpdir(), 'oub-empty-'))
    await writeFile(join(empty, 'nothing'), 'no program')
    const image = `oubliette-test/empty:${randomUUID()}`
    execFileSync('sh', ['-c', `tar -C '${empty}' -c nothing | docker import - '${image}' >/dev/null`])
    await rm(empty, { recursive: true })
    foreign.push(docker.getImage(image))
    const project_id = await booted.project({ image })
    const answer = await booted.client().call('container', { action: 'start', project_id })
    if (answer.is_error) expect(answer.text).not.toContain('internal error')
    const given_up = async () => /not restarted after 5/.test((await get(project_id)).reason ?? '')
    await until(given_up, { what: 'it is given up', deadline_ms: 40_000 })
    expect((await get(project_id)).status).toBe('failed')
    await booted.ok('project', { action: 'update', project_id, image: null })
    expect((await start(project_id)).status).toBe('running')
    expect(await get(project_id)).toMatchObject({ status: 'running', reason: null })
    await booted.ok('project', { action: 'delete', project_id })
  })
})

describe('a container that is not wanted', () => {
  test('is stopped when it was started outside Oubliette', async () => {
    const { project_id, container_id } = await started()
    await booted.ok('container', { action: 'stop', project_id, grace_seconds: 0 })
    await docker.getContainer(container_id).start()
    await until(async () => !(await isRunning(project_id)), { what: 'it is stopped', deadline_ms: 20_000 })
    expect(await get(project_id)).toMatchObject({ wanted: 'stopped' })
  })

  test('that was removed outside Oubliette is reported as absent', async () => {
    const { project_id, container_id } = await started()
    await booted.ok('container', { action: 'stop', project_id, grace_seconds: 0 })
    await docker.getContainer(container_id).remove({ force: true })
    await until(async () => (await get(project_id)).status === 'absent', { what: 'the row says so' })
    expect((await start(project_id)).status).toBe('running')
  })
})

describe('orphans', () => {
  const labels = async (instance: string | undefined, project: string) => ({
    'oubliette.instance': instance ?? (await instanceOf(booted.server)),
    'oubliette.project': project,
  })

  test('of this instance are removed from the engine and moved aside on the disk; what is foreign stays', async () => {
    const { server } = booted
    const { project_id, container_id } = await started({ network: 'internal' })
    const image = (await docker.getContainer(container_id).inspect()).Config.Image
    const make = async (instance: string | undefined, name: string) => {
      const Labels = await labels(instance, randomUUID())
      const container = await docker.createContainer({ Image: image, Labels, Cmd: ['true'] })
      const network = await docker.createNetwork({
        Name: name,
        Labels,
        IPAM: { Config: [{ Subnet: '10.214.0.0/28' }] },
      })
      await docker.createVolume({ Name: name, Labels })
      const volume = docker.getVolume(name)
      foreign.push(container, network, volume)
      return { container, network, volume }
    }
    const theirs = await make('another-instance', `oub-test-${randomUUID()}`)
    await theirs.network.remove()
    const unlabelled = await docker.createContainer({ Image: image, Cmd: ['true'] })
    foreign.push(unlabelled)
    await make(undefined, `oub-test-${randomUUID()}`)
    const stray = randomUUID()
    await mkdir(join(server.home, 'projects', stray, 'workspaces/default'), { recursive: true })
    await mkdir(join(server.home, 'sockets/deadbeefdeadbeef'), { recursive: true })
    // A project that lost its row has everything that a project can have.
    await booted.query('delete from projects where id = $1', [project_id])

    const rows = (await booted.query<{ id: string }>('select id from projects')).map(({ id }) => id)
    const clean = async () => {
      const { containers, networks, volumes } = await inEngine(server)
      const { projects, sockets } = await onDisk(server)
      const known = new Set(rows)
      const short = new Set(rows.map((id) => id.replaceAll('-', '').slice(0, 16)))
      return (
        [...containers, ...networks, ...volumes, ...projects].every((id) => known.has(id)) &&
        sockets.every((name) => short.has(name))
      )
    }
    await until(clean, { what: 'everything without a row is gone', deadline_ms: 30_000 })
    const [date] = await readdir(join(server.home, 'lost'))
    expect(await readdir(join(server.home, 'lost', date!))).toEqual(
      expect.arrayContaining([stray, project_id]),
    )
    await theirs.container.inspect()
    await theirs.volume.inspect()
    await unlabelled.inspect()
  })
})

describe('a restart', () => {
  test.each(['SIGTERM', 'SIGKILL'] as const)('by %s leaves running containers alone', async (signal) => {
    const { project_id, container_id } = await started({ network: 'internal' })
    await booted.exec(project_id, 'echo kept > file; setsid sleep 43001 </dev/null >/dev/null 2>&1 &')
    const before = (await isRunning(project_id))!.State
    await booted.server.restart(signal)
    await booted.reconnect()
    expect((await isRunning(project_id))!.State).toMatchObject({
      StartedAt: before.StartedAt,
      Pid: before.Pid,
    })
    expect((await get(project_id)).container_id).toBe(container_id)
    const { stdout } = await booted.exec(project_id, 'cat file; pgrep -fc "^sleep 43001$"')
    expect(stdout).toBe('kept\n1\n')
    expect((await start(project_id)).container_id).toBe(container_id)
  })

  test('starts again what ended while the server was down', async () => {
    const { project_id, container_id } = await started()
    await booted.server.kill('SIGKILL')
    await docker.getContainer(container_id).remove({ force: true })
    await booted.server.restart()
    await booted.reconnect()
    await until(() => isRunning(project_id), { what: 'it runs again', deadline_ms: 20_000 })
  })

  test('by SIGTERM lets a running command end, and its answer arrives', async () => {
    const { project_id } = await started()
    const answer = booted.exec(project_id, 'touch begun; sleep 2; echo finished')
    const begun = async () =>
      (await booted.ok('workspace', { action: 'path_info', project_id, path: 'begun' })).exists
    await until(begun, { what: 'the command runs' })
    await booted.server.restart('SIGTERM')
    expect(await answer).toMatchObject({ stdout: 'finished\n', exit_code: 0 })
    await booted.reconnect()
  })

  test('by SIGTERM does not wait longer than its deadline', async () => {
    const { project_id } = await started()
    const call = booted.exec(project_id, 'touch begun; sleep 600').catch((error: Error) => error)
    const begun = async () =>
      (await booted.ok('workspace', { action: 'path_info', project_id, path: 'begun' })).exists
    await until(begun, { what: 'the command runs' })
    const from = performance.now()
    await booted.server.kill('SIGTERM')
    expect(performance.now() - from).toBeLessThan(20_000)
    await booted.server.restart()
    await booted.reconnect()
    expect(await call).toBeInstanceOf(Error)
    expect((await booted.exec(project_id, 'echo ok')).stdout).toBe('ok\n')
  })
})
