// What happens to containers from outside and from inside: paused, out of memory, killed by an operator, killed by a droid,
// without their socket.
import { rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/scripted-agent.ts'
import {
  completionOf,
  end,
  get,
  history,
  say,
  spawn,
  untilSaid,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Answer, type Booted, boot, containerOf, onDisk } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
const reconcile_seconds = 1

beforeAll(async () => {
  booted = await boot({
    config: {
      droids: scriptedDroids,
      reconcile_seconds,
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
    },
  })
})
afterAll(() => booted?.stop())

const inEngine = async (project_id: string) =>
  (await (await containerOf(booted.server, project_id)).inspect()).State
const shown = async (project_id: string): Promise<Answer> =>
  (await booted.ok('project', { action: 'get', project_id })).container
const failures = async (project_id: string): Promise<number> =>
  (
    await booted.query<{ failures: number }>('select failures from containers where project_id = $1', [
      project_id,
    ])
  )[0]!.failures
async function running(fields: Record<string, unknown> = {}): Promise<string> {
  const project_id = await booted.project(fields)
  await booted.ok('container', { action: 'start', project_id })
  return project_id
}
const completed = (session_id: string, turn_id: string) =>
  until(async () => completionOf(await history(booted, session_id), turn_id), {
    deadline_ms: 20_000,
    what: 'the turn ends',
  })
/** Two sweeps of the reconciler have looked at everything: one may have begun before. */
async function reconciled(): Promise<void> {
  const project_id = await booted.project()
  for (const wanted of ['running', 'stopped']) {
    await booted.query('update containers set status = $2 where project_id = $1', [project_id, 'failed'])
    await until(async () => (await shown(project_id)).status !== 'failed', { what: `a sweep (${wanted})` })
  }
}

describe('a paused container', () => {
  test('is a state of its own: calls say so, sessions wait, and unpause goes on where it was', async () => {
    const project_id = await running()
    const { session_id } = await spawn(
      booted,
      project_id,
      'echo pid $$; until [ -e stop ]; do sleep 0.05; done; echo over',
      { wait_seconds: 0 },
    )
    await untilSaid(booted, session_id, 'pid')
    const idle = await spawn(booted, project_id, 'echo idle')
    const { StartedAt } = await inEngine(project_id)

    expect(await booted.ok('container', { action: 'pause', project_id })).toMatchObject({ status: 'paused' })
    expect(await booted.ok('container', { action: 'pause', project_id })).toMatchObject({ status: 'paused' })
    expect((await inEngine(project_id)).Paused).toBe(true)
    expect(await shown(project_id)).toMatchObject({
      wanted: 'running',
      status: 'paused',
      reason: 'the container is paused; container unpause resumes it',
    })
    for (const call of [{ action: 'exec', command: 'true' }, { action: 'start' }])
      expect(await booted.fault('container', { project_id, ...call })).toMatchObject({
        kind: 'conflict',
        message: 'the container is paused',
        hint: 'container unpause resumes it',
      })
    const waiting = await say(booted, idle.session_id, 'echo later', { wait_seconds: 0 })
    const spawned = await spawn(booted, project_id, 'echo new', { wait_seconds: 0 })
    expect(spawned.reason).toBe('the container is paused; container unpause resumes it')
    await reconciled()
    expect(await inEngine(project_id)).toMatchObject({ Paused: true, StartedAt })
    expect(await get(booted, session_id)).toMatchObject({ status: 'running' })

    await booted.ok('container', { action: 'unpause', project_id })
    await booted.ok('container', { action: 'unpause', project_id })
    expect(await completed(idle.session_id, waiting.turn_id)).toMatchObject({ final_text: 'later\n' })
    expect(await completed(spawned.session_id, spawned.turn_id)).toMatchObject({ final_text: 'new\n' })
    await booted.exec(project_id, 'touch stop')
    await untilSaid(booted, session_id, 'over')
    expect(await shown(project_id)).toMatchObject({ status: 'running', reason: null })
    expect((await inEngine(project_id)).StartedAt).toBe(StartedAt)
    expect(await failures(project_id)).toBe(0)
  })

  test('by hand is seen, also by a server that is killed meanwhile, and loses nothing', async () => {
    const project_id = await running()
    const { session_id } = await spawn(booted, project_id, 'echo first')
    const container = await containerOf(booted.server, project_id)
    const { StartedAt } = await inEngine(project_id)
    await container.pause()
    await until(async () => (await shown(project_id)).status === 'paused', { what: 'it is seen' })
    const waiting = await say(booted, session_id, 'echo second', { wait_seconds: 0 })
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    await reconciled()
    expect((await booted.fault('container', { action: 'exec', project_id, command: 'true' })).kind).toBe(
      'conflict',
    )
    expect(await shown(project_id)).toMatchObject({ status: 'paused' })
    expect(await get(booted, session_id)).toMatchObject({ status: 'idle' })
    await container.unpause()
    expect(await completed(session_id, waiting.turn_id)).toMatchObject({ final_text: 'second\n' })
    expect(await shown(project_id)).toMatchObject({ status: 'running' })
    expect((await inEngine(project_id)).StartedAt).toBe(StartedAt)
  })

  test('can be stopped, made anew and deleted', async () => {
    const project_id = await running()
    await booted.ok('container', { action: 'pause', project_id })
    await booted.ok('container', { action: 'stop', project_id, grace_seconds: 1 })
    expect(await shown(project_id)).toMatchObject({ status: 'stopped' })
    expect(await booted.fault('container', { action: 'pause', project_id })).toMatchObject({
      kind: 'conflict',
      message: 'the container is not running',
    })
    await booted.ok('container', { action: 'start', project_id })
    await booted.ok('container', { action: 'pause', project_id })
    await booted.ok('container', { action: 'start', project_id, recreate: true })
    expect((await booted.exec(project_id, 'echo here')).stdout).toBe('here\n')
    await booted.ok('container', { action: 'pause', project_id })
    await booted.ok('project', { action: 'delete', project_id })
    await expect(containerOf(booted.server, project_id)).rejects.toThrow('0 containers')
  })
})

describe('a lack of memory', () => {
  test('is named by a script that was killed for it, and by no other', async () => {
    const project_id = await running({ limits: { memory_mb: 128 } })
    const { session_id, ...killed } = await spawn(booted, project_id, 'kill -9 $$')
    expect(killed).toMatchObject({ status: 'idle', reason: null })
    const full = await say(booted, session_id, 'tail /dev/zero')
    expect(full).toMatchObject({ status: 'idle', reason: 'out of memory (limit 128 MiB)' })
    const events = await history(booted, session_id)
    expect(completionOf(events, killed.turn_id)).toMatchObject({ error: 'the script was killed by SIGKILL' })
    expect(completionOf(events, full.turn_id)).toMatchObject({
      stop_reason: 'error',
      error: 'out of memory (limit 128 MiB): the script failed with exit code 137',
    })
    expect(await say(booted, session_id, 'echo on')).toMatchObject({ final_text: 'on\n', reason: null })
  })

  test('is the reason of an agent that it ended, and of no other', async () => {
    const project_id = await running({ droid: 'scripted', limits: { memory_mb: 200 } })
    await putAgent(booted, project_id)
    const killed = await spawn(booted, project_id, 'echo here')
    await booted.exec(project_id, 'kill -9 $(pgrep -f "^[^ ]*node .*agent.mjs" | head -1)')
    expect((await untilStatus(booted, killed.session_id, 'failed')).reason).toContain(
      'the agent was killed by SIGKILL',
    )
    const { session_id } = await spawn(booted, project_id, 'allocate 400', { wait_seconds: 0 })
    const { reason } = await untilStatus(booted, session_id, 'failed')
    expect(reason).toMatch(/^out of memory \(limit 200 MiB\)/)
    expect((await say(booted, session_id, 'echo again')).final_text).toBe('again')
    await end(booted, session_id)
  })

  test('is the reason of all sessions when it ends the main process', async () => {
    const project_id = await running({ limits: { memory_mb: 128 } })
    // The kernel takes the process with the highest score.
    const { session_id } = await spawn(
      booted,
      project_id,
      'for p in /proc/[0-9]*; do grep -q supervise $p/cmdline 2>/dev/null && echo 1000 > $p/oom_score_adj; done; tail /dev/zero',
      { wait_seconds: 0 },
    )
    expect(await untilStatus(booted, session_id, 'failed')).toMatchObject({
      reason: 'the container ended with exit code 137: out of memory (limit 128 MiB)',
    })
    expect((await say(booted, session_id, 'echo again')).final_text).toBe('again\n')
    expect(await failures(project_id)).toBe(1)
  })
})

describe('the limit of crashes', () => {
  const backAfter = async (project_id: string, work: () => Promise<unknown>): Promise<void> => {
    const before = (await inEngine(project_id)).StartedAt
    await work()
    await until(
      async () => {
        const { Running, StartedAt } = await inEngine(project_id)
        return Running && StartedAt !== before && (await shown(project_id)).status === 'running'
      },
      { deadline_ms: 20_000, what: 'the container is back' },
    )
  }

  test('does not count what an operator did, and counts what a droid did', async () => {
    const project_id = await running()
    const container = await containerOf(booted.server, project_id)
    for (let round = 0; round < 4; round++) await backAfter(project_id, () => container.kill())
    await backAfter(project_id, () => container.stop({ t: 1 }))
    await backAfter(project_id, () => container.restart({ t: 1 }))
    await backAfter(project_id, () => container.remove({ force: true }))
    expect(await failures(project_id)).toBe(0)

    const suicide = () =>
      booted.client().call('container', { action: 'exec', project_id, command: 'kill -TERM 1' })
    for (let round = 1; round <= 5; round++) {
      await backAfter(project_id, suicide)
      expect(await failures(project_id)).toBe(round)
    }
    await suicide()
    await until(async () => (await shown(project_id)).status === 'failed', { what: 'it is given up' })
    expect((await shown(project_id)).reason).toContain('not restarted after 5 failed starts')
    await booted.ok('container', { action: 'start', project_id })
    expect(await shown(project_id)).toMatchObject({ status: 'running' })
  }, 90_000)
})

describe('a socket that was deleted on the host', () => {
  test('is there again after one interval, and connections from the container work', async () => {
    const before = new Set((await onDisk(booted.server)).sockets)
    const project_id = await running()
    const [name] = (await onDisk(booted.server)).sockets.filter((it) => !before.has(it))
    const socket = join(booted.server.home, 'sockets', name!, 'relay.sock')
    const dial = async () =>
      (
        await booted.exec(project_id, [
          '/opt/oubliette/node',
          '-e',
          `require('net').connect('/run/oubliette/relay.sock').on('connect', () => { console.log('connected'); process.exit() }).on('error', (error) => console.log(error.code))`,
        ])
      ).stdout
    expect(await dial()).toBe('connected\n')
    const before_rm = (await stat(socket)).ctimeMs
    await rm(socket)
    await until(async () => (await stat(socket)).ctimeMs > before_rm, {
      deadline_ms: 3000 * reconcile_seconds,
      what: 'the socket is there again',
    })
    expect(await dial()).toBe('connected\n')
    const { uid, mode } = await stat(socket)
    expect([uid, mode & 0o777]).toEqual([1000, 0o600])
    // The main process dials anew when it has to.
    await (await containerOf(booted.server, project_id)).restart({ t: 1 })
    expect((await spawn(booted, project_id, 'echo served')).final_text).toBe('served\n')
  })
})
