import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

const cap = 16_384
let booted: Booted
let project_id: string

beforeAll(async () => {
  booted = await boot({ config: { exec_output_bytes: cap } })
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

const exec = (command: string | string[], more = {}) => booted.exec(project_id, command, more)
const refused = (command: string | string[], more = {}) =>
  booted.fault('container', { action: 'exec', project_id, command, ...more })

describe('a command', () => {
  test('answers with its exit code and its two streams apart', async () => {
    const answer = await exec('echo out; echo err >&2; exit 42')
    expect(answer).toMatchObject({
      exit_code: 42,
      stdout: 'out\n',
      stderr: 'err\n',
      truncated: false,
      timed_out: false,
    })
    expect(answer.duration_ms).toBeGreaterThan(0)
  })

  test('as a string is run by bash, as an array it is run as it is', async () => {
    expect((await exec('x=(a b); echo $x "$BASH_VERSION"')).stdout).toMatch(/^a 5\./)
    expect((await exec(['printf', '%s|', 'a b', '$HOME', '*'])).stdout).toBe('a b|$HOME|*|')
  })

  test('starts in the default workspace, or in the one that is named', async () => {
    expect((await exec('pwd')).stdout).toBe('/workspaces/default\n')
    expect((await exec('pwd', { working_dir: '/tmp' })).stdout).toBe('/tmp\n')
    expect((await exec(['pwd'], { working_dir: '/usr/bin' })).stdout).toBe('/usr/bin\n')
    expect(await refused('pwd', { working_dir: '/nowhere' })).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('working_dir'),
    })
    expect(await refused('pwd', { working_dir: 'relative' })).toMatchObject({ kind: 'invalid' })
  })

  test('gets the environment that it is given, and nothing of the one before', async () => {
    const env = { PLAIN: 'x', QUOTED: `a "b" 'c' $d\nnext = é` }
    expect((await exec(['printenv', 'QUOTED'], { env })).stdout).toBe(`${env.QUOTED}\n`)
    expect((await exec('echo "$PLAIN"', { env })).stdout).toBe('x\n')
    expect((await exec('echo "[$PLAIN]"')).stdout).toBe('[]\n')
    expect((await exec('echo $HOME')).stdout).toBe('/home/droid\n')
    expect(await refused('true', { env: { 'A=B': 'x' } })).toMatchObject({ kind: 'invalid' })
  })

  test('reads its standard input to the end, also a long one, and none if none is given', async () => {
    expect((await exec('cat', { stdin: 'one\ntwo é' })).stdout).toBe('one\ntwo é')
    const long = 'x'.repeat(1_500_000)
    expect((await exec(['wc', '-c'], { stdin: long })).stdout.trim()).toBe('1500000')
    expect((await exec('head -c 3', { stdin: long })).stdout).toBe('xxx')
    expect(await exec('cat; echo over')).toMatchObject({ stdout: 'over\n', exit_code: 0 })
  })

  test('that is not there ends with 127, and one that cannot be run with 126', async () => {
    expect(await exec(['no-such-program'])).toMatchObject({
      exit_code: 127,
      stderr: expect.stringContaining('no-such-program'),
    })
    expect((await exec('no-such-program')).exit_code).toBe(127)
    expect((await exec(['/etc/passwd'])).exit_code).toBe(126)
  })

  test('that a signal ended has the exit code of the signal', async () => {
    expect((await exec('kill -9 $$')).exit_code).toBe(137)
    expect((await exec('kill -TERM $$')).exit_code).toBe(143)
  })
})

describe('output', () => {
  test('beyond the limit is truncated, and the answer marks it; the command is not blocked', async () => {
    const { stdout, truncated, exit_code, stderr } = await exec(
      'head -c 5000000 /dev/zero | tr "\\0" x; echo done >&2',
    )
    expect(stdout).toBe('x'.repeat(cap))
    expect({ truncated, exit_code, stderr }).toEqual({ truncated: true, exit_code: 0, stderr: 'done\n' })
  })

  test('of exactly the limit is whole', async () => {
    const { stdout, truncated } = await exec(`head -c ${cap} /dev/zero | tr "\\0" x`)
    expect({ length: stdout.length, truncated }).toEqual({ length: cap, truncated: false })
  })

  test('is never cut inside a character', async () => {
    const { stdout, truncated } = await exec(`printf 'x'; for i in $(seq ${cap}); do printf 'é'; done`)
    expect(truncated).toBe(true)
    expect(stdout).toMatch(/^xé+$/)
  })

  test('that is not UTF-8 arrives as well as text can hold it', async () => {
    const { stdout, exit_code } = await exec("printf 'a\\xff\\xfeb\\0c'")
    expect(exit_code).toBe(0)
    expect(stdout).toBe('a\ufffd\ufffdb\0c')
  })

  test('of many commands at once is not mixed up', async () => {
    const numbers = Array.from({ length: 16 }, (_, index) => index)
    const said = await Promise.all(numbers.map((n) => exec(`for i in 1 2 3; do echo ${n}; done; exit ${n}`)))
    expect(said.map(({ stdout, exit_code }) => [stdout, exit_code])).toEqual(
      numbers.map((n) => [`${n}\n${n}\n${n}\n`, n]),
    )
  })
})

/** Sleeps for this long show who is still there. */
const living = async (seconds: number) => (await exec(['pgrep', '-fc', `^sleep ${seconds}$`])).stdout.trim()

describe('the end of a command', () => {
  test('comes in time, with all that it started, in any process group or session', async () => {
    const tree = [
      'sleep 41001 & ',
      '(setsid sleep 41001 </dev/null >/dev/null 2>&1 &) ; ',
      '(setsid bash -c "(setsid sleep 41001 &) ; sleep 41001" >/dev/null 2>&1 &) ; ',
      'nohup bash -c "trap : TERM INT HUP; sleep 41001; sleep 41001" >/dev/null 2>&1 & ',
      'echo started; sleep 41001',
    ].join('')
    const from = performance.now()
    const answer = await exec(tree, { timeout_seconds: 1.5 })
    expect(answer).toMatchObject({ timed_out: true, stdout: 'started\n' })
    expect(answer.exit_code).not.toBe(0)
    expect(performance.now() - from).toBeLessThan(15_000)
    expect(await living(41001)).toBe('0')
  })

  test('by its time-out leaves other commands alone', async () => {
    const other = exec('sleep 4; echo survived')
    expect((await exec('sleep 41002', { timeout_seconds: 0.5 })).timed_out).toBe(true)
    expect((await other).stdout).toBe('survived\n')
  })

  test('comes when the caller cancels', async () => {
    const cancel = new AbortController()
    const call = booted.client().client.callTool(
      {
        name: 'container',
        arguments: {
          action: 'exec',
          project_id,
          command: 'setsid sleep 41003 & sleep 41003',
        },
      },
      { signal: cancel.signal },
    )
    const failed = expect(call).rejects.toThrow()
    await until(async () => (await living(41003)) === '2', { what: 'both are running' })
    cancel.abort(new Error('enough'))
    await failed
    await until(async () => (await living(41003)) === '0', { what: 'both are gone' })
  })

  test('does not wait for a daemon that it left behind with other streams', async () => {
    const answer = await exec('setsid sleep 41004 </dev/null >/dev/null 2>&1 & echo over')
    expect(answer).toMatchObject({ exit_code: 0, stdout: 'over\n', timed_out: false })
    await exec(['pkill', '-f', '^sleep 41004$'])
  })
})

test('is refused for an unknown project', async () => {
  const unknown = { project_id: '00000000-0000-4000-8000-000000000000' }
  expect(await booted.fault('container', { action: 'exec', command: 'true', ...unknown })).toMatchObject({
    kind: 'not_found',
  })
})

test('an attached command may wait for a day and a detached one run for a week, not longer', async () => {
  expect(await refused('true', { timeout_seconds: 86_401 })).toMatchObject({ kind: 'invalid' })
  expect(await refused('true', { timeout_seconds: 604_801, detach: true })).toMatchObject({ kind: 'invalid' })
  expect((await exec('echo ok', { timeout_seconds: 86_400 })).stdout).toBe('ok\n')
  expect((await exec('true', { timeout_seconds: 604_800, detach: true })).exec_id).toMatch(/^exec_/)
})
