// `run` as a person sees it, in a pseudo-terminal of 80 columns, with the scripted agent and with scripts.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import { end, get, untilStatus } from '../../fixtures/sessions.ts'
import { keys, openTerminal, type Terminal } from '../../fixtures/terminal/terminal.ts'
import { type Answer, type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
let env: Record<string, string>
const opened: Terminal[] = []

beforeAll(async () => {
  booted = await boot({
    config: {
      droids: {
        ...scriptedDroids,
        silent: { kind: 'acp', command: 'sleep', args: ['600'], memory_mb: 64 },
        large: { ...scriptedDroids.scripted, memory_mb: 300 },
      },
      limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 },
    },
  })
  env = {
    OUBLIETTE_HOME: booted.server.home,
    OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
    OUBLIETTE_TOKEN: booted.server.admin_token,
  }
  project_id = await booted.project({ name: 'desk', droid: 'scripted', limits: { memory_mb: 512 } })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterEach(() => {
  for (const terminal of opened.splice(0)) terminal.kill()
})
afterAll(() => booted?.stop())

function open(run: Parameters<typeof openTerminal>[0], more: Record<string, string> = {}): Terminal {
  const terminal = openTerminal(run, { ...env, ...more })
  opened.push(terminal)
  return terminal
}
const run = (...args: string[]) => open({ args: ['run', '--project', 'desk', ...args] })
const piped = (...args: string[]) => runCli(['run', '--project', 'desk', ...args], env)
const sessions = async (): Promise<Answer[]> =>
  (await booted.ok('session', { action: 'list', project_id, limit: 200 })).sessions
const latest = async (): Promise<Answer> => (await sessions()).at(-1)!
const isOver = async () => ['completed', 'failed', 'cancelled'].includes((await latest()).status)

describe('run in a terminal', () => {
  test('shows each step of an agent in 80 columns, and ends with time and tokens', async () => {
    const terminal = run('--autonomy', 'high', 'work 20')
    expect(await terminal.code).toBe(0)
    const { session_id } = await latest()
    const rows = terminal.screen.rows().map((row) => row.replaceAll(/\d+\.\d+s/g, 'N.Ns'))
    expect(rows).toEqual([
      `● scripted · desk/default · ${session_id.slice(0, 14)}`,
      '│ Where is',
      '│ the bug?',
      'I look at it.',
      '● Plan 1 of 2 done',
      '  ☑ Read the code',
      '  ▶ Fix the test',
      '✓ Read src/sum.ts · N.Ns',
      '✗ $ npm test · N.Ns',
      '  expected 3, received 4',
      '✓ Edit src/sum.ts +1 -1 · N.Ns',
      '    export function sum(a, b) {',
      '  -   return a - b',
      '  +   return a + b',
      '    }',
      '● Plan 2 of 2 done',
      '  ☑ Fix the test',
      'The test passes.',
      '✓ done in N.Ns · 7 tokens in, 1 out',
    ])
    expect(terminal.screen.unknown).toEqual([])
    expect(terminal.raw()).toContain('\x1b[32m✓')
  })

  test('has no colours with NO_COLOR', async () => {
    const terminal = open(
      { args: ['run', '--project', 'desk', '--autonomy', 'high', 'work'] },
      { NO_COLOR: '1' },
    )
    expect(await terminal.code).toBe(0)
    expect(terminal.raw()).not.toMatch(new RegExp(`${'\x1b'}\\[[0-9;]*m`))
    expect(terminal.screen.text()).toContain('✓ Read src/sum.ts')
  })

  test('neither text, titles nor errors of a droid can control it', async () => {
    const terminal = run('--autonomy', 'high', 'hostile')
    expect(await terminal.code).toBe(0)
    expect(terminal.screen.unknown).toEqual([])
    expect(terminal.raw()).not.toContain('\x1b]')
    expect(terminal.screen.text()).toContain('$ ls ␛]0;owned␇')
    // It begins like a question of ours, and is indented.
    expect(terminal.screen.rows()).toContain(' ? Allow? [y]es, [n]o:')
  })

  test('asks for permission; what was typed before is not an answer', async () => {
    for (const [answer, said, shown] of [
      ['y', 'yes', '✓ allowed'],
      ['no', 'no', '✗ denied'],
    ] as const) {
      const terminal = run('--autonomy', 'off', 'ask execute rm -rf build')
      // The agent has not asked yet.
      terminal.type(`y${keys.enter}`)
      await terminal.shows('? Allow? [y]es, [n]o')
      expect(terminal.screen.rows()).toContain('  │ $ rm -rf build')
      expect((await latest()).status).toBe('waiting')
      terminal.type(`perhaps${keys.enter}`)
      await terminal.shows('answer [y]es, [n]o')
      expect((await latest()).status).toBe('waiting')
      terminal.type(`${answer}${keys.enter}`)
      expect(await terminal.code).toBe(0)
      const rows = terminal.screen.rows()
      expect(rows).toContain(shown)
      expect(rows).toContain(said)
      expect(rows.join('\n')).not.toContain('Allow?')
    }
  })

  test('closes a question that is decided elsewhere', async () => {
    const terminal = run('--autonomy', 'off', 'ask edit')
    await terminal.shows('? Allow?')
    const { session_id } = await latest()
    const { approvals } = await booted.ok('approval', { action: 'list', session_id, status: 'open' })
    await booted.ok('approval', { action: 'decide', approval_id: approvals[0].approval_id, decision: 'deny' })
    expect(await terminal.code).toBe(0)
    expect(terminal.screen.text()).toContain('✗ denied')
    expect(terminal.screen.text()).not.toContain('Allow?')
  })

  test('Ctrl-C ends it while it starts, waits for memory, works and asks, and leaves the terminal as it was', async () => {
    const holder = await booted.ok('session', {
      action: 'spawn',
      project_id,
      droid: 'large',
      prompt: 'slow 2000 50',
      new_session: true,
    })
    await untilStatus(booted, holder.session_id, 'running')
    const phases: [string[], RegExp | string][] = [
      [['--droid', 'silent', 'x'], /starting silent/],
      [['--droid', 'large', 'x'], /queued at position 1/],
      [['--autonomy', 'high', 'slow 1000 50'], /word3/],
      [['--autonomy', 'off', 'ask edit'], /Allow\?/],
    ]
    for (const [args, phase] of phases) {
      const words = args.map((word) => `'${word}'`).join(' ')
      const terminal = open({
        shell: `trap : INT; $OUBLIETTE run --project desk ${words}; echo "code $?"; stty -a | grep -ow -e '-*icanon' -e '-*echo'`,
      })
      await terminal.shows(phase)
      terminal.type(keys.ctrl_c)
      await terminal.shows('code 130')
      await terminal.code
      expect(terminal.screen.rows().slice(-2).sort(), String(phase)).toEqual(['echo', 'icanon'])
      await until(isOver, { what: `the session is over (${phase})`, deadline_ms: 15_000 })
    }
    await end(booted, holder.session_id)
  })

  test('ends cleanly when its reader does', async () => {
    const terminal = open({
      shell: `set -o pipefail; $OUBLIETTE run -q --project desk --droid shell 'while :; do echo line; sleep 0.05; done' | head -n 2; echo "code $?"`,
    })
    await terminal.shows('code 0')
    await terminal.code
    expect(terminal.screen.rows()).toEqual(['line', 'line', 'code 0'])
    await until(isOver, { what: 'its session is over' })
  })
})

describe('run without a terminal', () => {
  test('writes the text of the droid to stdout, and plain lines to stderr', async () => {
    const { code, stdout, stderr } = await piped('--autonomy', 'high', 'work')
    expect([code, stdout]).toEqual([0, 'I look at it.\nThe test passes.\n'])
    expect(stderr).not.toContain('\x1b')
    expect(stderr).toMatch(/^● \$ npm test$/m)
    expect(stderr).toMatch(/^✗ \$ npm test · \d/m)
  })

  test('says how to answer a question', async () => {
    const running = piped('--autonomy', 'off', 'ask edit')
    const session = await until(async () => (await latest()).status === 'waiting' && (await latest()), {
      what: 'it asks',
    })
    const { approvals } = await booted.ok('approval', { action: 'list', session_id: session.session_id })
    const decided = await runCli(['approval', 'decide', approvals[0].approval_id, 'allow'], env)
    expect(decided.code).toBe(0)
    const { code, stdout, stderr } = await running
    expect([code, stdout]).toEqual([0, 'yes\n'])
    expect(stderr).toContain(
      `answer with: ./oubliette approval decide ${approvals[0].approval_id} allow|deny`,
    )
  })

  test('takes the prompt from standard input, or adds it', async () => {
    const bash = async (line: string) => {
      const terminal = open({ shell: `${line}; echo "code $?"` })
      await terminal.code
      return terminal.screen.rows()
    }
    const oubliette = '$OUBLIETTE run -q --project desk'
    expect(await bash(`echo 'echo from a pipe' | ${oubliette} --droid shell`)).toEqual([
      'from a pipe',
      'code 0',
    ])
    expect(await bash(`echo 'echo from a dash' | ${oubliette} --droid shell -`)).toEqual([
      'from a dash',
      'code 0',
    ])
    expect(await bash(`printf 'b\\na\\n' | ${oubliette} --droid shell 'sort; echo end'`)).toEqual([
      'a',
      'b',
      'end',
      'code 0',
    ])
    expect(await bash(`echo 'the rest' | ${oubliette} 'echo a'`)).toEqual(['a', '', 'the rest', 'code 0'])
  })

  test('goes on with a session that was kept', async () => {
    const first = await piped('--keep', 'echo one')
    const { session_id } = await latest()
    expect(first.stderr).toContain(`./oubliette run --session ${session_id} PROMPT`)
    // Ended at once, so it is not the one to continue.
    await piped('echo other')
    const again = await piped('--continue', 'history')
    expect([again.code, again.stdout]).toEqual([0, '["echo one","did echo","history"]\n'])
    const named = await runCli(['run', '-q', '--session', session_id.slice(0, 14), 'echo two'], env)
    expect(named).toMatchObject({ code: 0, stdout: 'two\n', stderr: '' })
    expect((await get(booted, session_id)).turns).toBe(3)
    await end(booted, session_id)
    const ended = await runCli(['run', '--session', session_id, 'echo three'], env)
    expect(ended).toMatchObject({ code: 1, stderr: expect.stringContaining('was ended') })
  })

  test.each([
    [['--droid', 'nobody', 'x'], 1, 'no droid "nobody"'],
    [['--workspace', 'nowhere', 'x'], 1, 'nowhere'],
    [['--session', 'gogol_zzzz', 'x'], 1, 'no session gogol_zzzz'],
    [['--autonomy', 'full', 'x'], 2, 'invalid value "full" for --autonomy: expected off, low, medium, high'],
    [['--session', 'gogol_1', '--droid', 'shell', 'x'], 2, '--droid cannot be combined with --session'],
  ])('%j is one clear line', async (args, code, message) => {
    const own = args.includes('--session') ? [] : ['--project', 'desk']
    const finished = await runCli(['run', ...own, ...args], env)
    expect(finished).toMatchObject({ code, stdout: '' })
    expect(finished.stderr).toContain(message)
    expect(finished.stderr.trim().split('\n').length).toBeLessThanOrEqual(2)
  })
})
