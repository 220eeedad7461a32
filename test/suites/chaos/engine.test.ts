// The engine itself is killed and started again. Everything on this machine that runs in it is touched, so this is only
// done on request: ./oubliette test --chaos
import { spawn as spawnProcess } from 'node:child_process'
import { readFile, rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { numbered } from '../../fixtures/chaos/chaos.ts'
import {
  completionOf,
  expectGapFree,
  get,
  history,
  say,
  spawn,
  textOf,
  untilSaid,
} from '../../fixtures/sessions.ts'
import { type Booted, boot, docker } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const pidFile = '/var/run/docker.pid'
const enginePid = async () => Number((await readFile(pidFile, 'utf8')).trim())
const answers = () =>
  docker.ping().then(
    () => true,
    () => false,
  )
let booted: Booted
let project_id: string

/** With the same arguments as before, as a service manager would do. */
async function startEngine(command: string[]): Promise<void> {
  for (let attempt = 0; attempt < 5; attempt++) {
    await rm(pidFile, { force: true })
    const [program = 'dockerd', ...args] = command
    spawnProcess(program, args, { detached: true, stdio: 'ignore' }).unref()
    // What the killed one left behind can make the first start fail.
    if (await until(answers, { deadline_ms: 20_000, what: 'the engine answers' }).catch(() => false)) return
  }
  throw new Error('the engine does not come back')
}

describe.skipIf(!process.env.OUBLIETTE_TEST_CHAOS)('when the engine is killed', { timeout: 180_000 }, () => {
  beforeAll(async () => {
    booted = await boot({ config: { reconcile_seconds: 2 } })
    project_id = await booted.project()
    await booted.ok('container', { action: 'start', project_id })
  })
  afterAll(() => booted?.stop())

  test('a session goes on or says why it does not, and the next message works', async () => {
    const pid = await enginePid()
    const command = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').filter(Boolean)
    const { LiveRestoreEnabled: survives } = (await docker.info()) as { LiveRestoreEnabled: boolean }
    const session = await spawn(booted, project_id, numbered('engine', 0.02), { wait_seconds: 0 })
    await untilSaid(booted, session.session_id, 'line 20\n')
    process.kill(pid, 'SIGKILL')
    try {
      await until(async () => !(await answers()), { what: 'the engine is gone' })
      // Who is connected to the container needs no engine.
      if (survives) expect((await booted.exec(project_id, 'echo still')).stdout).toBe('still\n')
    } finally {
      await startEngine(command)
    }
    await until(async () => (await fetch(`${booted.server.url}/readyz`)).ok, {
      what: 'the server is ready again',
    })
    if (survives) {
      await booted.exec(project_id, 'touch stop-engine')
      await until(async () => (await get(booted, session.session_id)).status === 'idle', {
        what: 'it comes to its end',
      })
      const lines = textOf(await history(booted, session.session_id))
        .trim()
        .split('\n')
      const last = Number(/^last (\d+)$/.exec(lines.at(-1) ?? '')?.[1])
      expect(lines.slice(1, -1)).toEqual(Array.from({ length: last }, (_, i) => `line ${i + 1}`))
    } else {
      const failed = await until(
        async () => {
          const seen = await get(booted, session.session_id)
          return seen.status === 'failed' && seen
        },
        { deadline_ms: 60_000, what: 'it is told that it ended' },
      )
      expect(failed.reason).toMatch(/container/)
      expect(completionOf(await history(booted, session.session_id), session.turn_id)?.stop_reason).toBe(
        'error',
      )
    }
    expect((await say(booted, session.session_id, 'echo next')).final_text).toBe('next\n')
    expectGapFree(await history(booted, session.session_id), session.session_id)
  })
})
