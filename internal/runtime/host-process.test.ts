import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, describe, expect, it } from 'vitest'
import { until } from '../../test/harness/wait.ts'
import { createLog } from '../log.ts'
import { createHostProcesses } from './host-process.ts'

const directory = await mkdtemp(join(tmpdir(), 'oub-host-'))
afterAll(() => rm(directory, { recursive: true, force: true }))
const log = createLog({ write: () => undefined })
const host = createHostProcesses(directory, log)
const signal = new AbortController().signal
const bash = (script: string, env: Record<string, string> = {}) =>
  host.open({ command: ['bash', '--norc', '-c', script], env }, signal)

const lives = (pid: number) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

describe('a program of the host', { timeout: 40_000 }, () => {
  it('has its streams, its exit code and only the environment that it is given', async () => {
    process.env.OUBLIETTE_TEST_LEAK = 'secret'
    const program = await bash('cat; env; echo words >&2; exit 5', { GIVEN: 'yes' })
    program.stdin.end('hello\n')
    const [out, err] = await Promise.all([text(program.stdout), text(program.stderr)])
    expect(out).toMatch(/^hello\n/)
    expect(out).toContain('GIVEN=yes')
    expect(out).not.toContain('secret')
    expect(err).toBe('words\n')
    expect(await program.ended).toEqual({ exit_code: 5, reason: 'it ended with exit code 5' })
    expect(await readdir(directory)).toEqual([])
  })

  it('that does not exist is reported', async () => {
    const program = await host.open({ command: ['/no/such/program'], env: {} }, signal)
    expect(await program.ended).toMatchObject({
      exit_code: 127,
      reason: expect.stringContaining('not found'),
    })
  })

  it.each([
    ['in its group', 'sleep 1000 & echo $!; sleep 1000'],
    ['in a session of its own', 'setsid sleep 1000 & echo $!; sleep 1000'],
    ['without its environment', 'env -i setsid sleep 1000 & echo $!; sleep 1000'],
    [
      'that ignore signals',
      `bash -c 'trap "" TERM INT HUP; while :; do sleep 1; done' & echo $!; trap "" TERM; while :; do sleep 1; done`,
    ],
  ])('is killed with all that it started: processes %s', async (_, script) => {
    const program = await bash(script)
    const [chunk] = (await once(program.stdout, 'data')) as [Buffer]
    const pid = Number(String(chunk).trim())
    expect(lives(pid)).toBe(true)
    await program.kill()
    await until(() => !lives(pid), { what: `process ${pid} is gone` })
    expect(await readdir(directory)).toEqual([])
  })

  it('leaves nothing when it ends by itself', async () => {
    const program = await bash('setsid sleep 1000 & echo $!')
    const [chunk] = (await once(program.stdout, 'data')) as [Buffer]
    await program.ended
    await until(() => !lives(Number(String(chunk).trim())), { what: 'the child is gone' })
  })
})

describe('after the death of the server', { timeout: 40_000 }, () => {
  /** A server that starts programs and is killed. */
  async function orphan(script: string): Promise<number[]> {
    const server = spawn(
      process.execPath,
      [
        '--input-type=module',
        '-e',
        `const { createHostProcesses } = await import(${JSON.stringify(join(import.meta.dirname, 'host-process.ts'))})
         const log = { warn() {} }
         const { stdout } = await createHostProcesses(${JSON.stringify(directory)}, log).open(
           { command: ['bash', '--norc', '-c', ${JSON.stringify(script)}], env: {} }, new AbortController().signal)
         stdout.pipe(process.stdout)`,
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    )
    let seen = ''
    server.stdout.on('data', (chunk) => {
      seen += chunk
    })
    await until(() => seen.split('\n').length > 2, { what: 'both ids' })
    server.kill('SIGKILL')
    await once(server, 'exit')
    return seen.trim().split('\n').map(Number)
  }

  it('the group is killed at once, although it ignores the end of stdin', async () => {
    const pids = await orphan('trap "" TERM HUP; sleep 1000 & echo $$; echo $!; wait')
    for (const pid of pids) await until(() => !lives(pid), { what: `process ${pid} is gone` })
  })

  it('what left the group is killed by the sweep of the next one', async () => {
    const [, left] = await orphan('setsid sleep 1000 & echo $$; echo $!; wait')
    const next = createHostProcesses(directory, log)
    await next.sweep()
    await until(() => !lives(left!), { what: `process ${left} is gone` })
    expect(await readdir(directory)).toEqual([])
  })
})
