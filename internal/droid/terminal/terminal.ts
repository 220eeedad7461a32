// A terminal in the container: a program on a pseudo-terminal, whose bytes travel on a connection of their own. The pair of
// devices is made by `script` of util-linux, which gets the connection itself as its input and output: no byte passes through
// this process, and a reader that is too slow blocks the program. Everything that was started in the terminal ends with it.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants as fs, readdirSync, readFileSync, statSync } from 'node:fs'
import { createConnection, type Socket } from 'node:net'
import { constants } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Fault, messageOf } from '../../fault.ts'
import { lockLimit, withLockLimit } from '../../lib/process/lock-limit.ts'
import { endProcesses, lowerPriority } from '../../lib/process/processes.ts'
import type { TerminalCommand } from '../../protocol/messages.ts'
import { terminalPath } from '../../protocol/wire.ts'

export type TerminalSize = { rows: number; cols: number }
export type Terminal = {
  /** Sizes that arrive while one is being set are combined. */
  resize(size: TerminalSize): Promise<void>
  /** Settles with the exit code when all processes are gone. */
  ended: Promise<number>
  close(): Promise<void>
}

const run = promisify(execFile)
const connectMs = 10_000
/** Time between SIGHUP and SIGKILL. */
const hangupMs = 1_000
const resizeMs = 5_000
const settledMs = 50
const firstPts = 136
const lastPts = 143

function findProgram(name: string, path: string): string | undefined {
  for (const directory of path.split(':').filter((part) => part.startsWith('/'))) {
    const file = join(directory, name)
    try {
      accessSync(file, fs.X_OK)
      return file
    } catch {
      // In another directory, or nowhere.
    }
  }
  return undefined
}

function requireProgram(name: string, path: string): string {
  const file = findProgram(name, path)
  if (file) return file
  throw new Fault('conflict', `the image of the container has no "${name}", which a terminal needs`, {
    hint: 'install util-linux (Debian: bsdutils) and coreutils in the image, or use container exec',
  })
}

const databases = ['/etc/terminfo', '/lib/terminfo', '/usr/share/terminfo', '/usr/lib/terminfo']

/** A type that the image does not know would break every full-screen program. */
export function knownTerm(term: string): string {
  const isKnown = (name: string) =>
    databases.some((place) => statSync(join(place, name[0]!, name), { throwIfNoEntry: false })?.isFile())
  return isKnown(term) || !isKnown('xterm-256color') ? term : 'xterm-256color'
}

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`

/** Waits until the size is set, so that the program never sees another one. */
const startLine = (command: string[], shell: string): string =>
  [
    'n=0; while [ "$(stty size 2>/dev/null)" = "0 0" ] && [ "$n" -lt 300 ]; do n=$((n+1)); sleep 0.01; done',
    'stty echo iutf8 2>/dev/null',
    `SHELL=${quoted(shell)}; export SHELL`,
    `exec ${command.map(quoted).join(' ')}`,
  ].join('; ')

function statOf(pid: number) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses may itself contain anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [, ppid, , , device, foreground] = fields.map(Number)
    return { ppid: ppid!, device: device!, foreground: foreground! }
  } catch {
    return undefined
  }
}

export function ptsOf(device: number): string | undefined {
  const major = (device >> 8) & 0xfff
  if (major < firstPts || major > lastPts) return undefined
  const minor = (device & 0xff) | ((device >> 12) & 0xfff00)
  return `/dev/pts/${(major - firstPts) * 256 + minor}`
}

type Leader = { pid: number; path: string }

/** The child of `script`, and its terminal: it may redirect its input, but not change its terminal. */
function leaderOf(script_pid: number): Leader | undefined {
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const stat = statOf(Number(name))
    const path = stat?.ppid === script_pid ? ptsOf(stat.device) : undefined
    if (path) return { pid: Number(name), path }
  }
  return undefined
}

/** `stty` sets one side after the other, and a program that handles the first signal may miss the second. */
async function tellAgain({ pid }: Leader): Promise<void> {
  await delay(settledMs)
  const foreground = statOf(pid)?.foreground ?? 0
  if (foreground <= 1) return
  try {
    process.kill(-foreground, 'SIGWINCH')
  } catch {
    // It has ended.
  }
}

async function connect(path: string, key: string): Promise<Socket> {
  const socket = createConnection(path)
  // Nothing may be read here: what the server sends is for the program.
  socket.pause()
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(connectMs) })
    await new Promise<void>((resolve, reject) =>
      socket.write(`GET ${terminalPath}${key} HTTP/1.1\r\n\r\n`, (error) =>
        error ? reject(error) : resolve(),
      ),
    )
    return socket
  } catch (error) {
    socket.destroy()
    throw new Fault('unavailable', `failed to connect the terminal to the server: ${messageOf(error)}`)
  }
}

function environmentOf(
  env: Record<string, string>,
  { terminal_id, term }: TerminalCommand,
): Record<string, string> {
  return {
    ...(env.LANG || env.LC_ALL || env.LC_CTYPE ? {} : { LANG: 'C.UTF-8' }),
    ...env,
    TERM: knownTerm(term),
    // `script` starts the line below with it.
    SHELL: '/bin/sh',
    OUBLIETTE_TERMINAL_ID: terminal_id,
  }
}

export async function openTerminal(
  command: TerminalCommand,
  place: { socket: string; env: Record<string, string>; signal: AbortSignal },
): Promise<Terminal> {
  const path = place.env.PATH ?? '/usr/local/bin:/usr/bin:/bin'
  const script = requireProgram('script', path)
  const stty = requireProgram('stty', path)
  if (!statSync(command.working_dir, { throwIfNoEntry: false })?.isDirectory())
    throw new Fault('invalid', `${command.working_dir} is not a directory in the container`)
  const bash = findProgram('bash', path)
  const shell = bash ?? '/bin/sh'
  const program = command.command ?? [shell, '-l']
  const mark = `OUBLIETTE_TERMINAL_ID=${command.terminal_id}`
  const marked = bash ? withLockLimit(lockLimit(mark), program) : program

  const socket = await connect(place.socket, command.key)
  if (place.signal.aborted) {
    socket.destroy()
    throw place.signal.reason
  }
  const child = spawn(script, ['-qefc', startLine(marked, shell), '/dev/null'], {
    cwd: command.working_dir,
    env: environmentOf(place.env, command),
    stdio: [socket, socket, socket],
    detached: true,
  })
  // The child has its own descriptor.
  socket.destroy()
  lowerPriority(child)

  let leader: Leader | undefined
  let wanted: TerminalSize | undefined
  let setting: Promise<void> | undefined
  let over = false
  let first = true

  async function findLeader(): Promise<Leader | undefined> {
    const until = performance.now() + resizeMs
    while (!leader && !over && child.pid !== undefined && performance.now() < until) {
      leader = leaderOf(child.pid)
      if (!leader) await delay(5)
    }
    return leader
  }
  async function set(): Promise<void> {
    while (wanted && !over) {
      const { rows, cols } = wanted
      wanted = undefined
      const found = await findLeader()
      if (!found || over) return
      await run(stty, ['-F', found.path, 'rows', String(rows), 'cols', String(cols)], {
        timeout: resizeMs,
      }).catch((error: unknown) => {
        if (!over) throw new Fault('internal', `failed to set the size: ${messageOf(error)}`)
      })
      if (!first) await tellAgain(found)
      first = false
    }
  }
  function resize(size: TerminalSize): Promise<void> {
    wanted = size
    setting ??= set().finally(() => {
      setting = undefined
    })
    return setting
  }
  const close = async (): Promise<void> => void (await endProcesses(mark, child.pid, hangupMs, 'SIGHUP'))

  const exited = new Promise<number>((resolve) => {
    child.once('error', () => resolve(126))
    child.once('exit', (code, signal) => resolve(code ?? 128 + (signal ? constants.signals[signal] : 0)))
  })
  resize(command).catch(() => undefined)
  return {
    resize,
    close,
    ended: exited.then(async (exit_code) => {
      over = true
      await close()
      return exit_code
    }),
  }
}
