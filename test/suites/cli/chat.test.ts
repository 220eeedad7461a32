// `chat` as a person sees it, in a pseudo-terminal of 80 columns, with the scripted agent.
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { putAgent, scriptedDroids } from '../../fixtures/agents/scripted-agent.ts'
import { get, say, spawn, untilStatus } from '../../fixtures/sessions.ts'
import { keys, openTerminal, type Terminal } from '../../fixtures/terminal/terminal.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
let env: Record<string, string>
const opened: Terminal[] = []

beforeAll(async () => {
  booted = await boot({
    config: { droids: scriptedDroids, limits: { max_active_sessions: 100, max_spawns_per_minute: 1000 } },
  })
  env = {
    OUBLIETTE_HOME: booted.server.home,
    OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
    OUBLIETTE_TOKEN: booted.server.admin_token,
  }
  project_id = await booted.project({ name: 'desk', droid: 'scripted' })
  await booted.ok('container', { action: 'start', project_id })
  await putAgent(booted, project_id)
})
afterEach(() => {
  for (const terminal of opened.splice(0)) terminal.kill()
})
afterAll(() => booted?.stop())

async function chat(...args: string[]): Promise<Terminal> {
  const terminal = openTerminal({ args: ['chat', ...args] }, env)
  opened.push(terminal)
  await terminal.shows('Ctrl-D to leave')
  return terminal
}
const start = async (more: object = {}) =>
  String((await spawn(booted, project_id, 'echo first answer', more)).session_id)
const line = (text: string) => `${text}${keys.enter}`
const times = (terminal: Terminal) =>
  terminal.screen.rows().map((row) => row.replaceAll(/\d+\.\d+s/g, 'N.Ns'))

describe('chat', () => {
  test('shows what was said, sends messages, and leaves the session running', async () => {
    const session_id = await start()
    const terminal = await chat(session_id.slice(0, 14))
    terminal.type(line('echo second answer'))
    await terminal.shows('\nsecond answer\n')
    await terminal.shows(/(done in[\s\S]*){2}\n>$/)
    terminal.type(line('/status'))
    await terminal.shows('  status   idle')
    terminal.type(line('//literal'))
    await terminal.shows('› /literal')
    await terminal.shows(/(done in[\s\S]*){3}\n>$/)
    terminal.type(keys.ctrl_d)
    expect(await terminal.code).toBe(0)
    const rows = times(terminal)
    expect(rows.slice(0, 8)).toEqual([
      `● scripted · desk/default · ${session_id.slice(0, 14)}`,
      '› echo first answer',
      'first answer',
      '✓ done in N.Ns · 17 tokens in, 1 out',
      '  type a message, /help for commands, Ctrl-D to leave',
      '› echo second answer',
      'second answer',
      '✓ done in N.Ns · 18 tokens in, 1 out',
    ])
    expect(rows.at(-1)).toBe(`  left ${session_id}`)
    expect(terminal.screen.unknown).toEqual([])
    expect(await get(booted, session_id)).toMatchObject({ status: 'idle', turns: 3 })
    const file = join(booted.server.home, 'chat-history')
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(readFileSync(file, 'utf8')).toContain('echo second answer\n')
    const again = await chat(session_id)
    again.type(keys.up)
    await again.shows('> //literal')
    again.type(`${keys.ctrl_u}${line('/end')}`)
    expect(await again.code).toBe(0)
    expect((await get(booted, session_id)).status).toBe('completed')
  })

  test('shows turns of others, and does not garble what is being typed', async () => {
    const session_id = await start()
    const terminal = await chat()
    terminal.type('half a sentence')
    await terminal.shows('> half a sentence')
    const other = say(booted, session_id, 'slow 60 20')
    await terminal.shows('word10 ')
    terminal.type(' and the rest')
    await other
    await terminal.shows(/(done in[\s\S]*){2}\n> half a sentence and the rest$/)
    const rows = terminal.screen.rows()
    const first = rows.indexOf('› slow 60 20')
    const said = rows.slice(
      first + 1,
      rows.findLastIndex((row) => row.includes('done in')),
    )
    expect(said.join(' ').split(/\s+/)).toEqual(Array.from({ length: 60 }, (_, at) => `word${at + 1}`))
    terminal.type(keys.ctrl_c)
    await terminal.shows('press Ctrl-C again to leave')
    terminal.type(keys.ctrl_c)
    expect(await terminal.code).toBe(0)
    expect((await get(booted, session_id)).status).toBe('idle')
  })

  test('Ctrl-C and /cancel stop the turn, and the chat goes on', async () => {
    const session_id = await start()
    const terminal = await chat(session_id)
    terminal.type(line('slow 1000 50'))
    await terminal.shows('word2 ')
    terminal.type(keys.ctrl_c)
    await terminal.shows('✗ cancelled after')
    terminal.type(line('slow 2000 50'))
    await terminal.shows(/› slow 2000 50\nword1/)
    terminal.type(line('/cancel'))
    await terminal.shows(/cancelled after[\s\S]*cancelled after/)
    terminal.type(line('/bye'))
    await terminal.shows('unknown command /bye')
    terminal.type(line('echo still here'))
    await terminal.shows('\nstill here\n')
    terminal.type(line('/quit'))
    expect(await terminal.code).toBe(0)
  })

  test('asks for permission in place, and keeps what was being typed', async () => {
    const session_id = await start({ autonomy_level: 'off' })
    const terminal = await chat(session_id)
    terminal.type('y')
    await terminal.shows('> y')
    const other = say(booted, session_id, 'ask execute make all')
    await terminal.shows('? Allow? [y]es, [n]o')
    terminal.type(keys.enter)
    await terminal.shows('answer [y]es, [n]o')
    expect((await get(booted, session_id)).status).toBe('waiting')
    terminal.type(line('n'))
    expect((await other).final_text).toBe('no')
    await terminal.shows(/✗ denied\nno\n[\s\S]*\n> y$/)
    terminal.type(keys.ctrl_u)
    // A question that is open when the chat begins.
    const waiting = say(booted, session_id, 'ask edit')
    await untilStatus(booted, session_id, 'waiting')
    const second = await chat(session_id)
    await second.shows('? Allow?')
    second.type(line('yes'))
    expect((await waiting).final_text).toBe('yes')
    await terminal.shows('✓ allowed')
    await terminal.shows(/\n>$/)
  })

  test('survives a server that is killed, also a message that is sent meanwhile', async () => {
    const session_id = await start()
    const terminal = await chat(session_id)
    terminal.type(line('slow 100 50'))
    await terminal.shows('word5 ')
    await booted.server.kill('SIGKILL')
    await terminal.shows('server unreachable, retrying')
    terminal.type(line('echo while it was down'))
    await booted.server.restart()
    await booted.reconnect()
    await terminal.shows('\nwhile it was down\n', 60_000)
    const text = terminal.screen.rows().join(' ').replaceAll(/\s+/g, ' ')
    const words = text.match(/word\d+/g)
    expect(words).toEqual(Array.from({ length: 100 }, (_, at) => `word${at + 1}`))
    expect(text.match(/› echo while it was down/g)).toHaveLength(1)
    await until(async () => (await get(booted, session_id)).turns === 3, { what: 'all turns are over' })
    terminal.type(keys.ctrl_d)
    expect(await terminal.code).toBe(0)
  })

  test('without a terminal, lines of standard input are messages', async () => {
    const session_id = await start()
    const terminal = openTerminal(
      {
        shell: `printf 'echo one\\n\\necho two\\n' | $OUBLIETTE attach ${session_id} 2> /dev/null; echo "code $?"`,
      },
      env,
    )
    opened.push(terminal)
    await terminal.code
    expect(terminal.screen.rows()).toEqual(['one', 'two', 'code 0'])
    expect(await get(booted, session_id)).toMatchObject({ status: 'idle', turns: 3 })
  })

  test.each([
    [['gogol_zzzz'], 'no session gogol_zzzz'],
    [['--project', 'nowhere'], 'no project'],
  ])('%j is one clear line', async (args, message) => {
    const finished = await runCli(['chat', ...args], env)
    expect(finished).toMatchObject({ code: 1, stdout: '' })
    expect(finished.stderr).toContain(message)
  })
})
