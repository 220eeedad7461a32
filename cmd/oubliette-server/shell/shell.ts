// `./oubliette shell PROJECT`: a terminal in the container of a project, or one command in a terminal.
import { spawnSync } from 'node:child_process'
import { constants } from 'node:os'
import { endpoint } from '../client/call.ts'
import { resolveProject } from '../client/project.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { createProgress } from '../setup/progress.ts'
import { runTerminal, type Screen } from './connection.ts'

// Of a program that could not do it itself: the normal screen, no mouse reports, no bracketed paste, a visible cursor.
const resetModes = '\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m'

const signals = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT'] as const

/** Keys reach the program as they are typed. Restored when disposed, and on every other way out of this process. */
function rawMode(): Disposable {
  const { stdin } = process
  let raw = true
  const restore = () => {
    if (!raw) return
    raw = false
    stdin.setRawMode(false)
  }
  const leave = (name: NodeJS.Signals) => {
    restore()
    process.stdout.write(resetModes)
    process.exit(128 + constants.signals[name])
  }
  stdin.setRawMode(true)
  // The raw mode of Node still turns a line feed into two characters, which full-screen programs send to move down.
  spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] })
  process.on('exit', restore)
  for (const name of signals) process.on(name, leave)
  return {
    [Symbol.dispose]() {
      restore()
      process.off('exit', restore)
      for (const name of signals) process.off(name, leave)
      stdin.pause()
    },
  }
}

const screen: Screen = {
  input: process.stdin,
  output: process.stdout,
  size: () => ({
    rows: Math.min(1000, process.stdout.rows || 24),
    cols: Math.min(1000, process.stdout.columns || 80),
  }),
  onResize(changed) {
    process.stdout.on('resize', changed)
    return () => process.stdout.off('resize', changed)
  },
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(args, { workspace: { type: 'string', short: 'w' } }, true)
  const [given, ...command] = positionals
  if (given === undefined) throw new Usage('missing PROJECT', 'example: ./oubliette shell site')
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new Usage(
      'a shell needs a terminal, and standard input or output is not one',
      `to run a command without a terminal, use: ./oubliette container exec ${given} COMMAND`,
    )
  const config = place()
  const where = endpoint(config, baseUrl(config))
  const project_id = await resolveProject(where, given)
  const url = new URL(`/projects/${project_id}/terminal`, where.url)
  const { rows, cols } = screen.size()
  const { TERM: term = '' } = process.env
  url.searchParams.set('rows', String(rows))
  url.searchParams.set('cols', String(cols))
  if (/^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$/.test(term)) url.searchParams.set('term', term)
  if (values.workspace) url.searchParams.set('workspace_id', values.workspace)
  for (const word of command) url.searchParams.append('command', word)
  const progress = createProgress()
  let open = false
  let waiting = false
  using _raw = rawMode()
  try {
    return await runTerminal(url, where.token, screen, {
      progress(message) {
        waiting = true
        progress.detail(message)
      },
      ready() {
        open = true
        if (waiting) progress.end()
      },
    })
  } catch (error) {
    if (open) process.stdout.write(`${resetModes}\r\n`)
    else if (waiting) progress.end()
    throw error
  }
}

export const shell: Command = {
  about: 'Open a terminal in the container of a project',
  usage: '[OPTIONS] PROJECT [-- COMMAND…]',
  details: `Starts a login shell, or COMMAND, in a workspace of the project. The container is started if it does not run. Everything
that is started in the terminal ends with it. The exit code is that of the shell or the command.`,
  options: [['-w, --workspace ID', 'Workspace to start in (default: the default workspace)']],
  examples: ['./oubliette shell site', './oubliette shell site --workspace review -- vim README.md'],
  run,
}
