// The ways in which a session ends without anybody asking for it, and the way out of each.
import Docker from 'dockerode'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  completionOf,
  expectGapFree,
  get,
  history,
  processes,
  say,
  spawn,
  statusesOf,
  untilSaid,
  untilStatus,
} from '../../fixtures/sessions.ts'
import { type Booted, boot, containerOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({ config: { session_idle_minutes: 0.1, reconcile_seconds: 1 } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

/** Long enough not to be idle for too long. */
const busy = async () => {
  const session = await spawn(booted, project_id, 'echo going; sleep 5001', { wait_seconds: 0 })
  await untilSaid(booted, session.session_id, 'going')
  return session
}

describe('a session whose', () => {
  test('turns are over is completed after the idle time, and a message resumes it', async () => {
    const { session_id } = await spawn(booted, project_id, 'echo first')
    const completed = await untilStatus(booted, session_id, 'completed', 20_000)
    expect(completed.reason).toBe('idle for too long')
    const again = await say(booted, session_id, 'echo second')
    expect(again).toMatchObject({ session_id, final_text: 'second\n', status: 'idle' })
    const events = await history(booted, session_id)
    expectGapFree(events, session_id)
    expect(statusesOf(events)).toEqual([
      'starting',
      'running',
      'idle',
      'completed',
      'starting',
      'running',
      'idle',
    ])
  })

  test('script is killed ends its turn with the reason, and takes the next message', async () => {
    const session = await busy()
    await booted.exec(project_id, `kill -9 $(grep -l 'sleep.*5001' /proc/[0-9]*/cmdline | cut -d/ -f3); true`)
    await booted.exec(project_id, [
      'bash',
      '-c',
      "kill -9 $(grep -l '/scratch/' /proc/[0-9]*/cmdline | cut -d/ -f3); true",
    ])
    await untilStatus(booted, session.session_id, 'idle', 10_000)
    const completion = completionOf(await history(booted, session.session_id), session.turn_id)
    expect(completion).toMatchObject({ stop_reason: 'error', exit_code: 137 })
    expect((await say(booted, session.session_id, 'echo next')).final_text).toBe('next\n')
  })

  test('container is killed fails with the reason within seconds, and the next message works', async () => {
    const session = await busy()
    const idle = await spawn(booted, project_id, 'echo idle')
    const from = performance.now()
    await (await containerOf(booted.server, project_id)).kill()
    for (const { session_id } of [session, idle]) {
      const failed = await untilStatus(booted, session_id, 'failed', 15_000)
      expect(failed.reason).toMatch(/container/)
    }
    const seconds = (performance.now() - from) / 1000
    const events = await history(booted, session.session_id)
    expect(completionOf(events, session.turn_id)).toMatchObject({ stop_reason: 'error' })
    expect(events.at(-1)).toMatchObject({ type: 'status', status: 'failed' })
    expect((await say(booted, session.session_id, 'echo next')).final_text).toBe('next\n')
    expectGapFree(await history(booted, session.session_id), session.session_id)
    expect(await processes(booted, project_id, /sleep 5001/)).toEqual([])
    console.info(`container killed: its sessions failed after ${seconds.toFixed(1)} s`)
  })

  test('container is killed while the server is down fails with the reason', async () => {
    const session = await busy()
    await booted.server.kill('SIGKILL')
    await (await containerOf(booted.server, project_id)).kill()
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect((await untilStatus(booted, session.session_id, 'failed', 20_000)).reason).toMatch(/container/)
    expect((await say(booted, session.session_id, 'echo next')).final_text).toBe('next\n')
  })

  test('container is stopped on purpose fails, and a message starts both again', async () => {
    const session = await busy()
    await booted.ok('container', { action: 'stop', project_id })
    expect(await get(booted, session.session_id)).toMatchObject({ status: 'failed' })
    expect((await say(booted, session.session_id, 'echo next')).final_text).toBe('next\n')
  })

  test('container is removed outside Oubliette fails, and a message makes a new one', async () => {
    const session = await busy()
    await (await containerOf(booted.server, project_id)).remove({ force: true })
    await untilStatus(booted, session.session_id, 'failed', 20_000)
    expect((await say(booted, session.session_id, 'echo next')).final_text).toBe('next\n')
  })

  test('project is deleted is gone with everything it ran', async () => {
    const own = await booted.project()
    const session = await spawn(booted, own, 'sleep 5002', { wait_seconds: 1 })
    const { id } = await containerOf(booted.server, own)
    await booted.ok('project', { action: 'delete', project_id: own })
    expect((await booted.fault('session', { action: 'get', session_id: session.session_id })).kind).toBe(
      'not_found',
    )
    await until(
      () =>
        new Docker()
          .getContainer(id)
          .inspect()
          .then(
            () => false,
            (error: { statusCode?: number }) => error.statusCode === 404,
          ),
      { what: 'its container is gone' },
    )
  })
})
