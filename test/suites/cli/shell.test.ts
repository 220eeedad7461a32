// `./oubliette shell` in a real pseudo-terminal.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { noTerminalProcesses, terminalProcesses } from '../../fixtures/terminal/processes.ts'
import { openTerminal, type Terminal } from '../../fixtures/terminal/terminal.ts'
import { type Booted, boot } from '../../harness/booted.ts'
import { runCli } from '../../harness/cli.ts'
import { until } from '../../harness/wait.ts'

let booted: Booted
let project_id: string
const env = () => ({
  OUBLIETTE_HOME: booted.server.home,
  OUBLIETTE_ADDRESS: new URL(booted.server.url).host,
  OUBLIETTE_ADMIN_TOKEN: booted.server.admin_token,
})
const opened: Terminal[] = []
function shell(args: string[], size = {}): Terminal {
  const terminal = openTerminal({ args: ['shell', ...args] }, env(), size)
  opened.push(terminal)
  return terminal
}
beforeAll(async () => {
  booted = await boot()
  project_id = await booted.project({ name: 'site' })
  await booted.ok('container', { action: 'start', project_id })
})
afterEach(() => {
  for (const one of opened.splice(0)) one.kill()
})
afterAll(() => booted?.stop())

const clean = { code: 0, restored: true }

test('a shell by the name of the project: keys, size, exit code, and the terminal as before', async () => {
  const terminal = shell(['site'], { rows: 30, columns: 90 })
  await terminal.receives(/\$ $/)
  expect(await terminal.isRaw()).toBe(true)
  terminal.type('stty size; echo "größe 😀"\r')
  await terminal.receives('30 90\r\ngröße 😀\r\n')
  terminal.resize(41, 123)
  await until(
    async () => {
      terminal.type('stty size\r')
      return terminal.raw().includes('41 123\r\n')
    },
    { every_ms: 200, what: 'the new size' },
  )
  // Ctrl-C goes to the program in the container, not to the command.
  terminal.type('sleep 1000\r')
  await terminal.receives('sleep 1000\r\n')
  terminal.type('\x03')
  terminal.type('echo "code $?"\r')
  await terminal.receives('code 130\r\n')
  terminal.type('exit 42\r')
  expect(await terminal.ended()).toEqual({ code: 42, restored: true })
})

test('a command in a terminal, in a workspace, by the id of the project', async () => {
  await booted.ok('session', {
    action: 'spawn',
    project_id,
    workspace_id: 'review',
    create_workspace: true,
    prompt: 'true',
    wait_seconds: 20,
  })
  const terminal = shell([
    project_id,
    '--workspace',
    'review',
    '--',
    'bash',
    '-c',
    'pwd; test -t 0 && echo yes "$1"',
    'x',
    'a b',
  ])
  expect(await terminal.ended()).toEqual(clean)
  expect(terminal.raw()).toBe('/workspaces/review\r\nyes a b\r\n')
})

test('a full-screen program, at the size of the terminal', async () => {
  await booted.exec(project_id, 'seq 1 300 > /workspaces/default/numbers')
  const terminal = shell(['site', '--', 'less', 'numbers'], { rows: 12, columns: 40 })
  await terminal.receives('\r\n11\r\n')
  terminal.type('G')
  await terminal.receives('300')
  terminal.type('q')
  expect(await terminal.ended()).toEqual(clean)
  expect(terminal.raw()).toContain('\x1b[?1049l')
})

test('a megabyte of output arrives whole', async () => {
  const terminal = shell(['site', '--', 'bash', '-c', 'yes | head -c 1000000; echo end'])
  expect(await terminal.ended(60_000)).toEqual(clean)
  expect(terminal.raw().length).toBe(1_500_000 + 'end\r\n'.length)
})

test('the terminal is restored when the command is told to end, and when the server dies', async () => {
  const told = shell(['site'])
  await told.receives(/\$ $/)
  told.signal('SIGTERM')
  expect(await told.ended()).toEqual({ code: 143, restored: true })

  const cut = shell(['site'])
  await cut.receives(/\$ $/)
  cut.type('sleep 2000\r')
  await cut.receives('sleep 2000\r\n')
  expect(await terminalProcesses(booted, project_id)).toContain('sleep 2000')
  await booted.server.kill('SIGKILL')
  expect(await cut.ended()).toEqual({ code: 1, restored: true })
  expect(cut.raw()).toContain('the connection to the server was lost')
  // The supervisor ends what was in the terminal while there is no server.
  await booted.server.restart()
  await booted.reconnect()
  await noTerminalProcesses(booted, project_id)
})

test('errors are messages, and leave the terminal alone', async () => {
  const unknown = shell(['no-such-project'])
  expect(await unknown.ended()).toEqual({ code: 1, restored: true })
  expect(unknown.raw()).toContain('no project no-such-project')
  const workspace = shell(['site', '--workspace', 'nowhere'])
  expect(await workspace.ended()).toEqual({ code: 1, restored: true })
  expect(workspace.raw()).toContain('no workspace nowhere')
  const piped = await runCli(['shell', 'site'], env())
  expect(piped.code).toBe(2)
  expect(piped.stderr).toContain('./oubliette container exec site COMMAND')
})
