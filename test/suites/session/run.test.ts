import { type ChildProcess, spawn as spawnProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { removeInstance } from '../../harness/docker.ts'
import { until } from '../../harness/wait.ts'

const main = join(import.meta.dirname, '../../../cmd/oubliette-server/main.ts')
let booted: Booted

beforeAll(async () => {
  booted = await boot({ env: { ANTHROPIC_API_KEY: '' } })
  await booted.ok('project', { action: 'create', name: 'quick', network: 'none' })
})
afterAll(() => booted?.stop())

type Running = { child: ChildProcess; out: string; err: string; code: Promise<number | null> }

function start(args: string[], env: Record<string, string> = {}): Running {
  const child = spawnProcess(process.execPath, [main, ...args], {
    env: {
      ...process.env,
      OUBLIETTE_HOME: booted.server.home,
      OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
      OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
      ...env,
    },
  })
  const running: Running = {
    child,
    out: '',
    err: '',
    code: once(child, 'close').then(([code]) => code as number | null),
  }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    running.out += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    running.err += text
  })
  return running
}
async function run(...args: string[]) {
  const running = start(['run', '--project', 'quick', ...args])
  return { code: await running.code, out: running.out, err: running.err }
}
const last = async (): Promise<Answer> =>
  (await booted.ok('session', { action: 'list', limit: 200 })).sessions.at(-1)

describe('oubliette run', () => {
  test('passes on the two streams and the exit code of the droid', async () => {
    expect(await run('-q', 'echo out; echo err >&2; exit 7')).toEqual({ code: 7, out: 'out\n', err: 'err\n' })
    expect(await run('-q', 'printf no-newline')).toEqual({ code: 0, out: 'no-newline', err: '' })
    const { code, out, err } = await run('echo out; echo err >&2; exit 7')
    expect([code, out]).toEqual([7, 'out\n'])
    expect(err).toMatch(/^● shell · quick\/default · gogol_\w{8}\nerr\n✗ exit code 7 after \d+\.\ds\n$/)
  })

  test('takes the id of a project as well, and makes none of the name of an id', async () => {
    const project_id = await booted.project()
    const there = start(['run', '--project', project_id, 'echo here'])
    expect([await there.code, there.out]).toEqual([0, 'here\n'])
    expect((await last()).project_id).toBe(project_id)
    const nowhere = start(['run', '--project', randomUUID(), 'echo here'])
    expect([await nowhere.code, nowhere.out]).toEqual([1, ''])
    expect(nowhere.err).toContain('no project')
  })

  test('prints output as it arrives', async () => {
    const running = start([
      'run',
      '--project',
      'quick',
      'echo first; until [ -e go-on ]; do sleep 0.05; done; echo second',
    ])
    await until(() => running.out === 'first\n', { what: 'the first line is there' })
    const { project_id } = await last()
    await booted.exec(project_id, 'touch go-on')
    expect(await running.code).toBe(0)
    expect(running.out).toBe('first\nsecond\n')
  })

  test('prints every event as a line of JSON if asked', async () => {
    const { code, out } = await run('--json', 'echo x; exit 3')
    const events = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(code).toBe(3)
    expect(events.map((event) => event.index)).toEqual(events.map((_, at) => at))
    expect(events.at(-1)).toMatchObject({ type: 'completion', exit_code: 3 })
  })

  test('leaves no session behind, unless it is to be kept', async () => {
    await run('true')
    await until(async () => (await last()).status === 'completed', { what: 'its session is over' })
    await run('--keep', 'true')
    expect((await last()).status).toBe('idle')
  })

  test('Ctrl-C cancels the turn; a second one ends the session', async () => {
    const running = start([
      'run',
      '--project',
      'quick',
      `trap 'echo asked; exit 1' TERM; echo going; sleep 60 & wait`,
    ])
    await until(() => running.out.includes('going'), { what: 'it runs' })
    running.child.kill('SIGINT')
    expect(await running.code).toBe(130)
    expect(running.out).toBe('going\nasked\n')
    expect((await last()).stop_reason).toBe('cancelled')
    const stubborn = start([
      'run',
      '--project',
      'quick',
      `trap '' TERM INT; echo going; while :; do sleep 1; done`,
    ])
    await until(() => stubborn.out.includes('going'), { what: 'it runs' })
    stubborn.child.kill('SIGINT')
    await until(() => stubborn.err.includes('press Ctrl-C again'), { what: 'it says what it does' })
    stubborn.child.kill('SIGINT')
    expect(await stubborn.code).toBe(130)
    await until(async () => (await last()).status === 'completed', { what: 'its session is over' })
  })

  test('continues when the server is killed and restarted', async () => {
    const running = start(['run', '--project', 'quick', 'for i in $(seq 60); do echo $i; sleep 0.1; done'])
    await until(() => running.out.includes('5\n'), { what: 'it runs' })
    await booted.server.restart('SIGKILL')
    await booted.reconnect()
    expect(await running.code).toBe(0)
    expect(running.out).toBe(Array.from({ length: 60 }, (_, i) => `${i + 1}\n`).join(''))
  })

  test('reports an error in one line', async () => {
    expect(await run()).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringContaining('missing PROMPT'),
    })
    expect(await run('--droid', 'nobody', 'x')).toMatchObject({
      code: 1,
      err: expect.stringContaining('no droid "nobody"'),
    })
  })

  test('names the key that a droid needs and that is missing, and starts nothing', async () => {
    const running = start(['run', '--droid', 'claude', 'hello'])
    expect(await running.code).toBe(1)
    expect(running.out).toBe('')
    expect(running.err).toContain(
      'droid "claude" needs a key for anthropic or bedrock, which is not configured',
    )
    expect(running.err).toContain(
      'set ANTHROPIC_API_KEY in the environment of the server, or add credentials.<name>',
    )
    const { projects } = await booted.ok('project', { action: 'list', name_contains: 'claude' })
    expect(projects).toMatchObject([{ container_type: 'claude', container: { status: 'absent' } }])
  })

  test('starts the server if none answers', { timeout: 120_000 }, async () => {
    const home = await mkdtemp(join(tmpdir(), 'oub-run-'))
    const probe = createServer().listen(0, '127.0.0.1')
    await once(probe, 'listening')
    const { port } = probe.address() as { port: number }
    await new Promise((resolve) => probe.close(resolve))
    const env = { OUBLIETTE_HOME: home, OUBLIETTE_ADDRESS: `127.0.0.1:${port}` }
    try {
      const running = start(['run', 'echo from nothing'], env)
      expect({ code: await running.code, out: running.out }).toEqual({ code: 0, out: 'from nothing\n' })
    } finally {
      await start(['down', '--all'], env).code
      await removeInstance((await readFile(join(home, 'instance-id'), 'utf8')).trim())
      await rm(home, { recursive: true, force: true })
    }
  })
})
