// Detached commands: started, looked at, read and ended by separate calls, over restarts of the server; bounded; and
// worth nothing to a container that forges or tampers.
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, mkdir, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { layoutOf } from '../../../internal/manager/workspace/layout.ts'
import { detach, living, outputOf, statusOf, untilLiving, untilOver } from '../../fixtures/commands.ts'
import { dial, socketOf } from '../../fixtures/droid-socket.ts'
import { type Answer, type Booted, boot, containerOf } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const limits = { running: 10, kept: 8, output_mb: 0.25, total_mb: 1 }
const mebibyte = 1024 * 1024
let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({ config: { execs: limits, reconcile_seconds: 1 } })
  project_id = await booted.project()
  await booted.ok('container', { action: 'start', project_id })
})
afterAll(() => booted?.stop())

const container = (action: string, more: object) => booted.ok('container', { action, ...more })
const kill = (exec_id: string, more = {}) => container('exec_kill', { exec_id, ...more })
const storeOf = (id: string) => join(layoutOf(booted.server.home).droidHome(id), '.oubliette/execs')
const fileOf = (id: string, exec_id: string, name: string) => join(storeOf(id), exec_id, name)

describe('a detached command', () => {
  test('is answered at once, and its output, streams and end are read afterwards', async () => {
    const from = performance.now()
    const exec_id = await detach(booted, project_id, 'echo out; echo err >&2; sleep 2; echo é; exit 3')
    expect(performance.now() - from).toBeLessThan(1800)
    expect(await statusOf(booted, exec_id)).toMatchObject({
      exec_id,
      project_id,
      status: 'running',
      exit_code: null,
      command: expect.stringContaining('echo out'),
    })
    const output = await outputOf(booted, exec_id)
    expect(output).toMatchObject({ stdout: 'out\né\n', stderr: 'err\n', status: 'exited', exit_code: 3 })
    expect(output.truncated).toBe(false)
    expect(await statusOf(booted, exec_id)).toMatchObject({ stdout_bytes: 7, stderr_bytes: 4, reason: null })
  })

  test('that cannot be started reports the reason: at once for its directory, in its output for its program', async () => {
    const request = { action: 'exec', project_id, command: 'true', detach: true, working_dir: '/nowhere' }
    expect(await booted.fault('container', request)).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('working_dir'),
    })
    const other = { ...request, working_dir: '/tmp', user: 'root' }
    expect(await booted.fault('container', other)).toMatchObject({ kind: 'forbidden' })
    const exec_id = await detach(booted, project_id, ['no-such-program'])
    expect(await outputOf(booted, exec_id)).toMatchObject({
      exit_code: 127,
      stderr: 'no-such-program: command not found\n',
    })
  })

  test('gets its input and its environment, and is listed', async () => {
    const exec_id = await detach(booted, project_id, 'cat; echo $MINE', { stdin: 'in\n', env: { MINE: 'x' } })
    expect((await outputOf(booted, exec_id)).stdout).toBe('in\nx\n')
    const { execs } = await container('exec_list', { project_id, status: 'exited', limit: 200 })
    expect(execs.map((it: Answer) => it.exec_id)).toContain(exec_id)
  })

  test('is read and ended across kills of the server', async () => {
    const exec_id = await detach(
      booted,
      project_id,
      'for i in $(seq 1 600); do echo "line $i"; sleep 0.05; done',
    )
    const more = { exec_id, wait_seconds: 10 }
    let page = await container('exec_output', more)
    let text = page.stdout
    for (let round = 0; round < 3; round++) {
      await booted.server.restart('SIGKILL')
      await booted.reconnect()
      page = await container('exec_output', { ...more, cursor: page.next_cursor })
      expect(page).toMatchObject({ status: 'running' })
      text += page.stdout
    }
    const killed = await kill(exec_id)
    expect(killed).toMatchObject({ status: 'killed', exit_code: 137 })
    text += (await outputOf(booted, exec_id, {}, page.next_cursor)).stdout
    const lines = text.trimEnd().split('\n')
    expect(lines.length).toBeGreaterThan(20)
    expect(lines).toEqual(lines.map((_: string, at: number) => `line ${at + 1}`))
    // Once more changes nothing.
    expect(await kill(exec_id)).toEqual(killed)
  })

  test('takes a signal of choice, and every process of it gets it', async () => {
    const asking =
      'trap "echo asked; exit 5" TERM; (trap "" TERM; setsid sleep 52001 &) ; while :; do sleep 0.1; done'
    const exec_id = await detach(booted, project_id, asking)
    await untilLiving(booted, project_id, 'sleep 52001', 1)
    await kill(exec_id, { signal: 'SIGTERM' })
    expect(await untilOver(booted, exec_id)).toMatchObject({ status: 'exited', exit_code: 5 })
    const stubborn = await detach(booted, project_id, 'setsid sleep 52002 & sleep 52002')
    await untilLiving(booted, project_id, 'sleep 52002', 2)
    expect(await kill(stubborn)).toMatchObject({ status: 'killed' })
    expect(await living(booted, project_id, 'sleep 52002')).toBe(0)
  })

  test('is lost with its container, and what it wrote stays', async () => {
    const other = await booted.project()
    const exec_id = await detach(booted, other, 'echo kept; sleep 52003')
    await until(async () => (await container('exec_output', { exec_id })).stdout === 'kept\n', {
      what: 'it has spoken',
    })
    await (await containerOf(booted.server, other)).kill()
    expect(await untilOver(booted, exec_id, 30_000)).toMatchObject({
      status: 'lost',
      reason: 'the container was restarted',
    })
    await container('stop', { project_id: other, grace_seconds: 0 })
    expect(await container('exec_output', { exec_id })).toMatchObject({ stdout: 'kept\n', status: 'lost' })
    await booted.ok('project', { action: 'delete', project_id: other })
    expect(await booted.fault('container', { action: 'exec_status', exec_id })).toMatchObject({
      kind: 'not_found',
    })
  })

  test('of a row that a killed server left without starting it is settled', async () => {
    const exec_id = 'exec_0123456789abcdef0123'
    await booted.query(
      `insert into execs (id, project_id, boot_id, command, status, created_by, started_at, deadline_at)
       values ($1, $2, 'another', 'true', 'running', 'test', now(), now() + interval '1 hour')`,
      [exec_id, project_id],
    )
    const going = await detach(booted, project_id, ['sleep', '52004'])
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await untilOver(booted, exec_id)).toMatchObject({ status: 'lost' })
    expect(await kill(going)).toMatchObject({ status: 'killed' })
  })

  test('that no row knows is ended', async () => {
    const exec_id = await detach(booted, project_id, ['sleep', '52005'])
    const known = await detach(booted, project_id, ['sleep', '52006'])
    await booted.query('delete from execs where id = $1', [exec_id])
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    await untilLiving(booted, project_id, 'sleep 52005', 0)
    expect(await living(booted, project_id, 'sleep 52006')).toBe(1)
    await kill(known)
  })
})

describe('bounds', () => {
  test('1,000 starts at once leave as many commands as may run, and the others are refused', async () => {
    const starts = Array.from({ length: 1000 }, () =>
      booted
        .client()
        .call('container', { action: 'exec', project_id, command: ['sleep', '52007'], detach: true }),
    )
    const answers = await Promise.all(starts)
    const ids = answers
      .filter(({ is_error }) => !is_error)
      .map(({ structured }) => String(structured.exec_id))
    const kinds = answers
      .filter(({ is_error }) => is_error)
      .map(({ structured }) => (structured.error as Answer).kind)
    expect(ids.length).toBe(limits.running)
    expect(new Set(kinds)).toEqual(new Set(['exhausted']))
    await untilLiving(booted, project_id, 'sleep 52007', limits.running)
    expect((await booted.exec(project_id, 'echo attached')).stdout).toBe('attached\n')
    await Promise.all(ids.map((exec_id) => kill(exec_id)))
    expect(await living(booted, project_id, 'sleep 52007')).toBe(0)
  })

  test('hold for the output of one command and of all, and for what is kept of those that are over', async () => {
    for (let round = 0; round < 12; round++) {
      const exec_id = await detach(booted, project_id, 'head -c 3000000 /dev/zero | tr "\\0" x; echo end >&2')
      const row = await untilOver(booted, exec_id)
      expect(row).toMatchObject({ status: 'exited', stdout_bytes: 3_000_000, stderr_bytes: 4 })
      const output = await outputOf(booted, exec_id)
      expect(output).toMatchObject({ truncated: true, stderr: 'end\n' })
      expect(output.stdout.length).toBe(limits.output_mb * mebibyte)
    }
    const { execs } = await container('exec_list', { project_id, limit: 200 })
    expect(execs.length).toBeLessThanOrEqual(limits.kept + 1)
    const kept = readdirSync(storeOf(project_id))
    expect(kept.length).toBeLessThanOrEqual(limits.kept + 1)
    const sizes = kept.flatMap((id) =>
      readdirSync(join(storeOf(project_id), id)).map((name) => fileOf(project_id, id, name)),
    )
    const bytes = sizes.reduce((sum, file) => sum + statSync(file).size, 0)
    expect(bytes).toBeLessThan(limits.total_mb * mebibyte + 100_000)
    expect(bytes).toBeGreaterThan(limits.output_mb * mebibyte)
  })
})

describe('a hostile container', () => {
  test('that replaces stored output gains nothing', async () => {
    const canary = join(booted.server.home, 'canary')
    await writeFile(canary, 'CANARY')
    const exec_id = await detach(booted, project_id, 'echo honest')
    await untilOver(booted, exec_id)
    const file = fileOf(project_id, exec_id, 'stdout')
    const read = () => container('exec_output', { exec_id })
    expect((await read()).stdout).toBe('honest\n')
    const tampering: [string, () => Promise<unknown>][] = [
      ['a link to a file of the host', () => symlink(canary, file)],
      ['a link to a device', () => symlink('/dev/zero', file)],
      ['a directory', () => mkdir(file)],
      ['a pipe', async () => execFileSync('sh', ['-c', `mkfifo '${file}'`])],
      ['nothing', async () => undefined],
    ]
    for (const [what, put] of tampering) {
      await rm(file, { recursive: true, force: true })
      await put()
      const { stdout, truncated } = await read()
      expect([what, stdout, truncated]).toEqual([what, '', true])
    }
    await rm(file, { recursive: true, force: true })
    await writeFile(file, '')
    await truncate(file, 10_000_000_000)
    const huge = await read()
    expect(huge.stdout.length).toBeLessThanOrEqual(65_536)
    await rm(file)
    await writeFile(file, 'forged\n')
    expect((await read()).stdout).toBe('forged\n')
  })

  test('that puts pipes where its supervisor writes does not block it', async () => {
    const planting =
      'cd ~/.oubliette/execs/$OUBLIETTE_EXEC_ID && mkfifo exec.json.new stdout && echo hello; echo ok >&2'
    const exec_id = await detach(booted, project_id, planting)
    expect(await untilOver(booted, exec_id)).toMatchObject({ status: 'exited', exit_code: 0 })
    expect(await outputOf(booted, exec_id)).toMatchObject({ stdout: '', stderr: 'ok\n', truncated: true })
    expect((await booted.exec(project_id, 'echo still here')).stdout).toBe('still here\n')
  })

  test('that forges records keeps its supervisor, and the records are ignored', async () => {
    const other = await booted.project()
    const exec_id = await detach(booted, other, ['sleep', '52008'])
    await untilLiving(booted, other, 'sleep 52008', 1)
    await container('stop', { project_id: other, grace_seconds: 0 })
    const forged = {
      exec_id,
      settled: false,
      ending: { status: 'exited', ended_at: '9999-01-01', exit_code: 1e9, reason: 'a\0b', more: 1 },
    }
    await writeFile(fileOf(other, exec_id, 'exec.json'), JSON.stringify(forged))
    await mkdir(join(storeOf(other), 'exec_00000000000000000000'))
    await writeFile(join(storeOf(other), 'exec_00000000000000000000', 'exec.json'), '[['.repeat(4000))
    await writeFile(join(storeOf(other), 'junk'), 'junk')
    await mkdir(join(storeOf(other), 'locked/inside'), { recursive: true })
    execFileSync('chown', ['-R', '1000:1000', storeOf(other)])
    await chmod(join(storeOf(other), 'locked'), 0)
    expect((await booted.exec(other, 'echo connected')).stdout).toBe('connected\n')
    const row = await statusOf(booted, exec_id)
    expect(row).toMatchObject({ exit_code: null })
    expect(Date.parse(row.ended_at)).toBeLessThanOrEqual(Date.now() + 1000)
    // Nor does it matter what replaces all of them.
    await container('stop', { project_id: other, grace_seconds: 0 })
    await chmod(join(storeOf(other), 'locked'), 0o700)
    await rm(storeOf(other), { recursive: true })
    await writeFile(storeOf(other), 'no directory')
    execFileSync('chown', ['1000:1000', storeOf(other)])
    const again = await detach(booted, other, 'echo again')
    expect((await outputOf(booted, again)).stdout).toBe('again\n')
    await booted.ok('project', { action: 'delete', project_id: other })
  })

  test('that is not the owner of a command cannot end it', async () => {
    const victim = await detach(booted, project_id, ['sleep', '52009'])
    const hostile = await booted.project()
    const own = await detach(booted, hostile, ['sleep', '52010'])
    await container('stop', { project_id: hostile, grace_seconds: 0 })
    const end = (exec_id: string) => ({
      exec_id,
      status: 'exited',
      exit_code: 0,
      reason: 'forged',
      ended_at: new Date().toISOString(),
      stdout_bytes: 0,
      stderr_bytes: 0,
    })
    const socket = socketOf(booted, hostile)
    const proof = readFileSync(join(socket, '../proof'), 'utf8').trim()
    const said = {
      role: 'supervisor',
      protocol: 1,
      client_version: 'x',
      proof,
      boot_id: 'forged',
      sessions: [],
    }
    const dialled = await dial(socket)
    const execs = { running: [victim], ended: [end(victim)] }
    const { result } = await dialled.ask('hello', { ...said, execs })
    expect(result).toMatchObject({ unknown_execs: [victim] })
    await dialled.ask('execs_ended', { execs: [end(victim), end(own)] })
    expect(await statusOf(booted, victim)).toMatchObject({ status: 'running', reason: null })
    // It may report its own as it likes.
    expect(await statusOf(booted, own)).toMatchObject({ status: 'exited', reason: 'forged' })
    for (const execs of [[], [{ ...end(own), status: 'running' }], [end('../x')], Array(1001).fill(end(own))])
      expect((await dialled.ask('execs_ended', { execs })).error?.message).toMatch(/execs_ended/)
    dialled.close()
    // A droid has no such method.
    const plain = await dial(socketOf(booted, project_id))
    expect((await plain.ask('execs_ended', { execs: [end(victim)] })).error?.message).toMatch(/supervisor/)
    plain.close()
    expect(await kill(victim)).toMatchObject({ status: 'killed' })
  })
})
