// Terminals in containers, as a client of the WebSocket sees them.
import { createHash } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { noTerminalProcesses, terminalProcesses } from '../../fixtures/terminal/processes.ts'
import { openTerminal, type WebTerminal } from '../../fixtures/terminal/web-terminal.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
const opened: WebTerminal[] = []
function open(query: Record<string, string | string[]> = {}): WebTerminal {
  const terminal = openTerminal(booted.server, project_id, { token: booted.server.admin_token, query })
  opened.push(terminal)
  return terminal
}
afterEach(() => {
  for (const { web } of opened.splice(0)) web.terminate()
})
const run = (...command: string[]) => open({ command })

const leftovers = () => terminalProcesses(booted, project_id)
const noneLeft = () => noTerminalProcesses(booted, project_id)

beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project()
})
afterAll(() => booted?.stop())

describe('a terminal', () => {
  test('starts the container, and is a login shell in the workspace', async () => {
    const terminal = open({ rows: '33', cols: '101' })
    await terminal.message('ready')
    await terminal.shows(/\$ $/)
    terminal.type('stty size; pwd; echo $TERM $SHELL; tty; shopt -q login_shell && echo login\r')
    const text = await terminal.shows('\nlogin\r\n')
    expect(text).toMatch(
      /33 101\r\n\/workspaces\/default\r\nxterm-256color (\/usr)?\/bin\/bash\r\n\/dev\/pts\/\d+\r\n/,
    )
    terminal.type('exit 7\r')
    expect(await terminal.message('exit')).toMatchObject({ exit_code: 7 })
    await until(terminal.closed, { what: 'the connection is closed' })
    await noneLeft()
  })

  test('runs a command with its arguments, and reports its exit code', async () => {
    const echo = run('printf', '%s|', "it's", 'a "b"', '$HOME', 'ü€😀')
    expect(await echo.message('exit')).toMatchObject({ exit_code: 0 })
    expect(echo.text()).toBe(`it's|a "b"|$HOME|ü€😀|`)
    const killed = run('bash', '-c', 'kill -9 $$')
    expect(await killed.message('exit')).toMatchObject({ exit_code: 137 })
    const missing = run('no-such-program')
    expect(await missing.message('exit')).toMatchObject({ exit_code: 127 })
    expect(missing.text()).toContain('no-such-program')
  })

  test('follows the size of the caller, and programs are told', async () => {
    const terminal = run('bash', '-c', 'trap "stty size" WINCH; stty size; while :; do read -t 60 _; done')
    await terminal.shows('24 80\r\n')
    terminal.send({ type: 'resize', rows: 50, cols: 132 })
    await terminal.shows('50 132\r\n')
    terminal.web.close()
    // Many at once: the last one counts.
    const watch = run('bash', '-c', 'while :; do stty size; sleep 0.05; done')
    await watch.shows('24 80\r\n')
    for (let cols = 1; cols <= 60; cols++) watch.send({ type: 'resize', rows: 10, cols })
    await watch.shows(/10 60\r\n$/)
    watch.web.close()
    await noneLeft()
  })

  test('interrupts, suspends and continues programs', async () => {
    const terminal = open()
    await terminal.shows(/\$ $/)
    terminal.type('sleep 1000\r')
    await terminal.shows('sleep 1000\r\n')
    terminal.type('\x03')
    await terminal.shows('^C')
    terminal.type('echo code $?\r')
    await terminal.shows('code 130')
    terminal.type('sleep 1001\r')
    await terminal.shows('sleep 1001\r\n')
    terminal.type('\x1a')
    await terminal.shows(/Stopped\s+sleep 1001/)
    terminal.type('kill %1; wait; echo gone\r')
    await terminal.shows('gone\r\n')
    terminal.type('\x04')
    await terminal.message('exit')
  })

  test('passes UTF-8, bracketed paste and full-screen programs through', async () => {
    const terminal = open()
    expect(await terminal.shows(/\$ $/)).toContain('\x1b[?2004h')
    terminal.type('\x1b[200~echo "gr\u00fc\u00dfe 😀"\x1b[201~\r')
    await terminal.shows('grüße 😀\r\n')
    // A pager uses the alternate screen, the size and single keys.
    terminal.type('seq 1 500 > n; TERM=xterm less n\r')
    await terminal.shows('\x1b[?1049h')
    await terminal.shows('\r\n23\r\n')
    terminal.type('G')
    await terminal.shows('500')
    terminal.type('q')
    await terminal.shows('\x1b[?1049l')
    terminal.type('exit\r')
    expect(await terminal.message('exit')).toMatchObject({ exit_code: 0 })
  })

  test('delivers every byte of a megabyte, in both directions', async () => {
    const out = run('bash', '-c', 'yes | head -c 1000000; echo; seq 1 100000')
    await out.message('exit')
    expect(out.text().split('\r\n').slice(-3)).toEqual(['99999', '100000', ''])
    expect(out.bytes()).toBe(1_500_000 + 2 + 588_895 + 100_000)
    // Raw, as for a program that reads keys: nothing is echoed or changed.
    const into = run('bash', '-c', 'stty raw -echo; echo ready; head -c 1000000 | sha256sum')
    await into.shows('ready')
    const part = '0123456789'.repeat(5_000)
    for (let sent = 0; sent < 20; sent++) into.type(part)
    await into.message('exit')
    expect(into.text()).toContain(createHash('sha256').update(part.repeat(20)).digest('hex'))
  })

  test('ends everything in it when the caller leaves', async () => {
    const terminal = run(
      'bash',
      '-c',
      'trap "" HUP TERM; (setsid sleep 1002 &); nohup sleep 1003 & sleep 1004 & echo started; wait',
    )
    await terminal.shows('started')
    await until(async () => (await leftovers()).includes('sleep 1002'), { what: 'it runs' })
    terminal.web.terminate()
    await noneLeft()
  })
})

describe('the end of a terminal', () => {
  test('comes with the container, and the caller is told', async () => {
    const terminal = run('sleep', '1005')
    await terminal.message('ready')
    await booted.ok('container', { action: 'stop', project_id })
    expect((await terminal.message('error')).error).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('the terminal was interrupted'),
    })
    await until(terminal.closed, { what: 'the connection is closed' })
    // The next one starts the container again.
    const next = run('echo', 'again')
    expect(await next.message('exit')).toMatchObject({ exit_code: 0 })
  })

  test('comes with an orderly stop of the server, which does not wait for it', async () => {
    const terminal = run('sleep', '1006')
    await terminal.message('ready')
    const from = performance.now()
    await booted.server.restart('SIGTERM')
    expect(performance.now() - from).toBeLessThan(15_000)
    expect((await terminal.message('error')).error).toMatchObject({ message: 'the server is stopping' })
    await booted.reconnect()
    await noneLeft()
  })

  test('comes when it is idle, and not before', async () => {
    const short = await boot({ config: { terminals: { idle_minutes: 0.05 } } })
    try {
      const id = await short.project()
      await short.ok('container', { action: 'start', project_id: id })
      const options = { token: short.server.admin_token }
      const idle = openTerminal(short.server, id, { ...options, query: { command: ['sleep', '1007'] } })
      const busy = openTerminal(short.server, id, {
        ...options,
        query: { command: ['bash', '-c', 'for i in {1..20}; do echo $i; sleep 0.5; done'] },
      })
      expect((await idle.message('error')).error).toMatchObject({
        kind: 'timeout',
        message: 'the terminal was idle for 0.05 minutes',
      })
      expect(await busy.message('exit')).toMatchObject({ exit_code: 0 })
      await noTerminalProcesses(short, id)
    } finally {
      await short.stop()
    }
  })
})

test('an unknown workspace is an error', async () => {
  const terminal = openTerminal(booted.server, project_id, {
    token: booted.server.admin_token,
    query: { workspace_id: 'absent' },
  })
  expect((await terminal.message('error')).error).toMatchObject({
    kind: 'not_found',
    message: 'no workspace absent',
  })
})
