// The commands as a person types them, against a running server.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

const checkout = resolve(import.meta.dirname, '../../..')
let booted: Booted
let project_id: string
let session_id: string
let scratch: string
const env = () => ({
  OUBLIETTE_HOME: booted.server.home,
  OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
  OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
})
const cli = (...words: string[]) => runCli(words, env())
async function ok(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await cli(...words)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
}
/** The script in a shell, for pipes. */
async function shell(line: string): Promise<string> {
  const child = spawn('bash', ['-c', line], { cwd: checkout, env: { ...process.env, ...env() } })
  let out = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text
  })
  const [code] = (await once(child, 'close')) as [number | null]
  expect(code).toBe(0)
  return out
}

beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'oub-cli-'))
  booted = await boot()
  project_id = await booted.project({ name: 'a-project-with-a-long-name-that-needs-space' })
  await booted.project({ name: 'newest' })
  const spawned = await booted.ok('session', {
    action: 'spawn',
    project_id,
    prompt: 'echo first answer',
    wait_seconds: 50,
  })
  session_id = spawned.session_id
})
afterAll(async () => {
  await booted?.stop()
  await rm(scratch, { recursive: true, force: true })
})

describe('lists', () => {
  test('fit 80 columns, newest first, with ages and short ids', async () => {
    const lines = (await ok('project', 'list')).trimEnd().split('\n')
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
    expect(lines[0]).toMatch(/^NAME +ID +STATUS/)
    expect(lines[1]).toMatch(/^newest +[0-9a-f]{8} .* \d+[smh]$/)
    expect(lines[2]).toContain(project_id.slice(0, 8))
    for (const words of [['session', 'list'], ['ps'], ['workspace', 'list', project_id], ['token', 'list']])
      for (const line of (await ok(...words)).split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  test('are limited, complete, or in other formats', async () => {
    const limited = await cli('project', 'list', '--limit', '1')
    expect(limited.stdout.trimEnd().split('\n')).toHaveLength(2)
    expect(limited.stderr).toBe('oubliette: 1 more projects; use --limit N or --all\n')
    expect((await ok('project', 'list', '--all', '-q')).trimEnd().split('\n')).toContain(project_id)
    expect(await ok('project', 'list', '-o', 'name')).toContain('newest\n')
    expect(await ok('project', 'list', '-o', 'wide')).toContain(project_id)
    expect(await ok('project', 'list', '-o', 'yaml')).toMatch(/^projects:\n- project_id: /)
    expect(JSON.parse(await ok('project', 'list', '--json')).projects).toHaveLength(2)
  })

  test('ps shows live sessions with their project', async () => {
    const lines = (await ok('ps')).trimEnd().split('\n')
    expect(lines[0]).toMatch(/^SESSION +PROJECT +DROID +STATUS +AGE/)
    expect(lines[1]).toMatch(/^gogol_[0-9a-f]{8} +a-project-.*shell +idle/)
    expect(await ok('ps', '-q')).toBe(`${session_id}\n`)
  })
})

describe('sessions', () => {
  test('are named by a unique prefix', async () => {
    const prefix = session_id.slice(0, 'gogol_'.length + 8)
    expect(JSON.parse(await ok('session', 'get', prefix, '--json')).session_id).toBe(session_id)
    const unknown = await cli('session', 'get', 'gogol_zz')
    expect([unknown.code, unknown.stderr.split('\n')[0]]).toEqual([1, 'oubliette: no session gogol_zz'])
    const { session_id: second } = await booted.ok('session', {
      action: 'spawn',
      project_id,
      prompt: 'true',
      new_session: true,
    })
    const ambiguous = await cli('session', 'get', 'gogol_')
    expect(ambiguous.code).toBe(1)
    expect(ambiguous.stderr).toContain(second)
    expect(ambiguous.stderr).toContain(session_id)
    await booted.ok('session', { action: 'end', session_id: second })
  })

  test('take a message after their id, and show their events', async () => {
    const sent = await ok(
      'session',
      'message',
      session_id,
      'echo second answer',
      '--wait-seconds',
      '50',
      '--json',
    )
    expect(JSON.parse(sent).session_id).toBe(session_id)
    const log = await ok('logs', session_id.slice(0, 16))
    expect(log).toContain('first answer')
    expect(log).toMatch(/^\d\d:\d\d:\d\d completion +second answer/m)
  })

  test('are followed until they end', async () => {
    const following = cli('logs', '-f', session_id)
    await booted.ok('session', { action: 'end', session_id })
    const { code, stdout } = await following
    expect(code).toBe(0)
    expect(stdout).toMatch(/status +completed/)
  })
})

describe('files and standard input', () => {
  test('a file is written from standard input and read to standard output, byte for byte', async () => {
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7) % 256))
    const file = join(scratch, 'bytes')
    await writeFile(file, bytes)
    await shell(`./oubliette workspace write-file ${project_id} x.bin - <${file}`)
    await shell(`./oubliette workspace read-file ${project_id} x.bin | cmp - ${file}`)
    await shell(`echo hello | ./oubliette workspace write-file ${project_id} x.txt -`)
    expect(await ok('workspace', 'read-file', project_id, 'x.txt')).toBe('hello\n')
  })

  test('a command in a container reads a pipe', async () => {
    expect(await shell(`printf 'a\\nb\\n' | ./oubliette container exec ${project_id} 'wc -l'`)).toBe('2\n')
  })
})

test('Ctrl-C cancels a call', async () => {
  const child = spawn(
    process.execPath,
    [
      join(checkout, 'cmd/oubliette-server/main.ts'),
      'container',
      'exec',
      project_id,
      'echo $$ >pid; sleep 50',
    ],
    { env: { ...process.env, ...env() }, stdio: 'ignore' },
  )
  const closed = once(child, 'close')
  await until(async () => (await booted.exec(project_id, 'cat pid 2>/dev/null || true')).stdout !== '', {
    what: 'the command runs',
  })
  child.kill('SIGINT')
  expect((await closed)[0]).toBe(130)
  await until(async () => (await booted.exec(project_id, 'kill -0 $(cat pid)')).exit_code !== 0, {
    what: 'the command is gone',
  })
})

test('errors are one line and a hint', async () => {
  const refused = await runCli(['project', 'list'], { ...env(), OUBLIETTE_ADDRESS: '127.0.0.1:1' })
  expect(refused).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(
      /^oubliette: cannot connect to the server at http:\/\/127\.0\.0\.1:1: .*\n {2}run .*\n$/,
    ),
  })
  const foreign = await runCli(['project', 'list'], { ...env(), OUBLIETTE_TOKEN: `oub_${'0'.repeat(64)}` })
  expect(foreign.stderr).toContain('rejected the token')
  expect((await cli('project', 'list', '-o', 'xml')).code).toBe(2)
})

test('completion knows the projects and sessions of the server', async () => {
  expect(await ok('__complete', 'project', 'get', 'new')).toBe('newest\n')
  expect(await ok('__complete', 'session', 'get', session_id.slice(0, 12))).toBe(`${session_id}\n`)
  expect(await ok('__complete', 'comp')).toBe('completion\n')
  for (const name of ['bash', 'zsh', 'fish']) expect(await ok('completion', name)).toContain('__complete')
  const line =
    'source <(./oubliette completion bash); COMP_WORDS=(./oubliette project get new); COMP_CWORD=3; _oubliette; echo "${COMPREPLY[@]}"'
  expect(await shell(line)).toBe('newest\n')
  expect(await ok('version')).toMatch(/^oubliette \d+\.\d+\.\d+/)
})
