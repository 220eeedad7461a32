// Each command in a container has one owner, the container's supervisor: its deadline holds without a server, it ends with
// the call that waits for it, and a supervisor that hangs holds nobody up.
import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { detach, living, statusOf, supervisorOf, untilLiving, untilOver } from '../../fixtures/commands.ts'
import { clientCommand, clientEnv, droid, socketOf } from '../../fixtures/droid-socket.ts'
import { history, spawn, textOf, untilSaid } from '../../fixtures/sessions.ts'
import { type Booted, boot, docker } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({ config: { heartbeat_seconds: 3, exec_output_bytes: 100_000 } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const restart = async () => {
  await booted.server.restart('SIGKILL')
  await booted.reconnect()
}

describe('when the server is killed', () => {
  test('the commands that it waited for end, with and without a user and right after a start', async () => {
    const fresh = await booted.project({ init_git: false })
    await booted.ok('container', { action: 'start', project_id: fresh })
    const calls = Array.from({ length: 20 }, (_, at) =>
      booted
        .exec(fresh, ['sleep', '51001'], { timeout_seconds: 600, ...(at % 2 ? { user: '1000' } : {}) })
        .catch(() => undefined),
    )
    await detach(booted, fresh, ['sleep', '51002'])
    await untilLiving(booted, fresh, 'sleep 51001', 20)
    await booted.server.kill('SIGKILL')
    try {
      await untilLiving(booted, fresh, 'sleep 51001', 0)
      // The probe sees what is still there.
      expect(await living(booted, fresh, 'sleep 51002')).toBe(1)
    } finally {
      await restart()
    }
    await Promise.all(calls)
  })

  test('the deadline of a command holds without it, and its end is known afterwards', async () => {
    const short = await detach(booted, project_id, 'setsid sleep 51003 & sleep 51003', { timeout_seconds: 3 })
    const long = await detach(booted, project_id, ['sleep', '51004'], { timeout_seconds: 600 })
    await untilLiving(booted, project_id, 'sleep 51003', 2)
    await booted.server.kill('SIGKILL')
    try {
      await untilLiving(booted, project_id, 'sleep 51003', 0, 10_000)
      expect(await living(booted, project_id, 'sleep 51004')).toBe(1)
    } finally {
      await restart()
    }
    expect(await untilOver(booted, short)).toMatchObject({ status: 'timed_out', exit_code: 137 })
    expect(await statusOf(booted, long)).toMatchObject({ status: 'running', ended_at: null })
    await booted.ok('container', { action: 'exec_kill', exec_id: long })
    expect(await living(booted, project_id, 'sleep 51004')).toBe(0)
  })
})

describe('a container that does not run', () => {
  test('is started by exec, whether it is absent or stopped', async () => {
    const other = await booted.project()
    expect((await booted.exec(other, 'git rev-parse --is-inside-work-tree')).stdout).toBe('true\n')
    await booted.ok('container', { action: 'stop', project_id: other, grace_seconds: 0 })
    expect((await booted.exec(other, 'echo here')).stdout).toBe('here\n')
    const { container } = await booted.ok('project', { action: 'get', project_id: other })
    expect(container).toMatchObject({ status: 'running', wanted: 'running' })
  })

  test('is started by a detached exec and by a spawn', async () => {
    const other = await booted.project()
    const exec_id = await detach(booted, other, 'echo begun; sleep 51005')
    await untilLiving(booted, other, 'sleep 51005', 1)
    await booted.ok('container', { action: 'stop', project_id: other, grace_seconds: 0 })
    expect(await statusOf(booted, exec_id)).toMatchObject({
      status: 'lost',
      reason: 'the container was stopped',
    })
    const { session_id } = await spawn(booted, other, 'echo from a droid')
    expect(textOf(await history(booted, session_id))).toBe('from a droid\n')
  })

  test('and cannot, because its image runs no supervisor, says so', async () => {
    const empty = await mkdtemp(join(tmpdir(), 'oub-empty-'))
    await writeFile(join(empty, 'nothing'), 'no program')
    const image = `oubliette-test/empty:${randomUUID()}`
    execFileSync('sh', ['-c', `tar -C '${empty}' -c nothing | docker import - '${image}' >/dev/null`])
    await rm(empty, { recursive: true })
    try {
      const other = await booted.project({ image })
      const fault = await booted.fault('container', { action: 'exec', project_id: other, command: ['true'] })
      expect(fault.message).toMatch(/before its supervisor connected|not restarted after/)
      await booted.ok('project', { action: 'delete', project_id: other })
    } finally {
      await docker.getImage(image).remove()
    }
  })
})

describe.concurrent('a supervisor', () => {
  test.each([
    ['replaced by links', 'rm -rf ~/.oubliette; ln -s /nowhere ~/.oubliette'],
    [
      'locked',
      'mkdir -p ~/.oubliette/scratch/a/b; chmod 0 ~/.oubliette/scratch/a ~/.oubliette/* ~/.oubliette ~',
    ],
    [
      'filled with junk',
      'cd ~/.oubliette/journal; ln -s /nowhere gogol_a; mkdir gogol_b; mkdir gogol_b/session.json',
    ],
  ])('whose directories are %s comes up again', async (_, tampering) => {
    const other = await booted.project()
    await booted.exec(other, tampering)
    await booted.ok('container', { action: 'stop', project_id: other, grace_seconds: 0 })
    expect((await booted.exec(other, 'echo back')).stdout).toBe('back\n')
    const { session_id } = await spawn(booted, other, 'echo a droid')
    expect(textOf(await history(booted, session_id))).toBe('a droid\n')
  })

  test('that never connects is named after half a minute', { timeout: 90_000 }, async () => {
    const other = await booted.project({ init_git: false })
    await booted.ok('container', { action: 'start', project_id: other })
    expect((await booted.exec(other, 'echo connected')).stdout).toBe('connected\n')
    await booted.ok('container', { action: 'stop', project_id: other, grace_seconds: 0 })
    // A socket that the user of the container may not open.
    await chown(socketOf(booted, other), 0, 0)
    const request = { action: 'exec', project_id: other, command: 'true' }
    expect(await booted.fault('container', request)).toMatchObject({
      kind: 'timeout',
      message: 'the supervisor of the container did not connect within 30 s',
    })
  })

  test('that hangs holds no exec beyond its time, is given up, and goes on where it was', {
    timeout: 90_000,
  }, async () => {
    const project_id = await booted.project()
    const readiness = async () => await (await fetch(`${booted.server.url}/readyz`)).json()
    expect(await readiness()).toEqual({ status: 'ready' })
    const counting = 'for i in $(seq 1 200); do echo "line $i"; sleep 0.05; done'
    const { session_id } = await spawn(booted, project_id, counting, { wait_seconds: 0 })
    const exec_id = await detach(booted, project_id, counting)
    await untilSaid(booted, session_id, 'line 5\n')
    const pid = await supervisorOf(booted, project_id)
    expect((await booted.exec(project_id, 'echo before', { timeout_seconds: 3 })).stdout).toBe('before\n')
    process.kill(pid, 'SIGSTOP')
    try {
      const from = performance.now()
      const request = { action: 'exec', project_id, command: 'echo never', timeout_seconds: 3 }
      const fault = await booted.fault('container', request)
      expect(['timeout', 'unavailable']).toContain(fault.kind)
      expect(performance.now() - from).toBeLessThan(12_000)
      await until(() => booted.server.log().includes('supervisor does not answer'), {
        what: 'the server names it',
        deadline_ms: 20_000,
      })
      expect(await readiness()).toEqual({
        status: 'ready',
        degraded: ['relay: the supervisors of 1 containers do not answer'],
      })
    } finally {
      process.kill(pid, 'SIGCONT')
    }
    expect((await booted.exec(project_id, 'echo after', { timeout_seconds: 10 })).stdout).toBe('after\n')
    expect(await readiness()).toEqual({ status: 'ready' })
    await until(async () => (await booted.ok('session', { action: 'get', session_id })).status === 'idle', {
      what: 'the session has said all',
      deadline_ms: 40_000,
    })
    const all = Array.from({ length: 200 }, (_, i) => `line ${i + 1}\n`).join('')
    expect(textOf(await history(booted, session_id))).toBe(all)
    expect(await untilOver(booted, exec_id, 40_000)).toMatchObject({ status: 'exited', exit_code: 0 })
    expect(await living(booted, project_id, 'sleep 0.05')).toBe(0)
  })
})

describe.concurrent('a command that takes its time', () => {
  const talking = 'for i in 1 2 3 4 5 6; do echo "part $i"; echo "aside $i" >&2; sleep 1; done'
  const patient = { timeout: 3500, resetTimeoutOnProgress: true }
  type Progress = { progress: number; message?: string }

  const expectLive = (result: Record<string, unknown>, updates: Progress[]) => {
    expect(result).toMatchObject({ exit_code: 0, stdout: expect.stringMatching(/^part 1\n.*part 6\n$/s) })
    const told = updates.map(({ message }) => message ?? '').join('')
    expect(told).toContain('part 1\n')
    expect(told).toContain('aside 4\n')
    const numbers = updates.map(({ progress }) => progress)
    expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b))
  }

  test.each(['2025', '2026'])('tells its output as progress to a client of the %s era', async (era) => {
    const mode = era === '2025' ? ('legacy' as const) : { pin: '2026-07-28' }
    const client = new Client({ name: 'patient', version: '1' }, { versionNegotiation: { mode } })
    const headers = { authorization: `Bearer ${booted.server.admin_token}` }
    await client.connect(
      new StreamableHTTPClientTransport(new URL('/mcp', booted.server.url), { requestInit: { headers } }),
    )
    const updates: Progress[] = []
    const { structuredContent } = await client.callTool(
      { name: 'container', arguments: { action: 'exec', project_id, command: talking } },
      { ...patient, onprogress: (update) => updates.push(update) },
    )
    expectLive(structuredContent as never, updates)
    await client.close()
  })

  test('tells its output as progress to the tools of a droid', async () => {
    const one = await droid(booted, project_id, { api_scope: `project:${project_id}` })
    const client = new Client({ name: 'droid', version: '1' })
    await client.connect(new StdioClientTransport({ ...clientCommand, env: clientEnv(one) }))
    const updates: Progress[] = []
    const { structuredContent } = await client.callTool(
      { name: 'oubliette_container', arguments: { action: 'exec', project_id, command: talking } },
      { ...patient, onprogress: (update) => updates.push(update) },
    )
    expectLive(structuredContent as never, updates)
    await client.close()
    await booted.ok('session', { action: 'end', session_id: one.session_id })
  })

  test('and prints without end tells a bounded part of it', async () => {
    const updates: Progress[] = []
    const { structuredContent } = await booted.client().client.callTool(
      {
        name: 'container',
        arguments: { action: 'exec', project_id, command: 'timeout 4 yes; echo over >&2' },
      },
      { onprogress: (update) => void updates.push(update) },
    )
    expect(structuredContent).toMatchObject({ truncated: true, stderr: 'over\n' })
    expect(updates.length).toBeGreaterThan(1)
    expect(updates.length).toBeLessThan(20)
    expect(Math.max(...updates.map(({ message }) => message?.length ?? 0))).toBeLessThan(20_000)
  })
})
