// `./oubliette up`: sets up the machine, starts the server and prints how to connect to it. Existing parts are used as they
// are.

import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline/promises'
import type { Settings } from '../../../internal/config/load.ts'
import { parseAddress } from '../../../internal/config/place.ts'
import { Fault } from '../../../internal/fault.ts'
import { checkHome, ensureHome, homeHolder } from '../../../internal/home-lock.ts'
import { isRoot } from '../../../internal/lib/is-root.ts'
import { type Command, checkout, options, Usage } from '../command.ts'
import { serverSettings } from '../settings.ts'
import { createProgress } from '../setup/progress.ts'
import { setUp } from '../setup/set-up.ts'
import { accountNamed, assertEngine, giveHome, isNew, restartAs } from '../setup/unprivileged.ts'
import { baseUrl, findServer, misdirected, untilReady } from './daemon.ts'
import { logFile, rotate } from './log-file.ts'

const ready_deadline_ms = 120_000

/** Without the token itself: this text ends up in terminals, logs and screenshots. */
export function banner(config: Settings): string {
  const where = config.admin_token ? 'in OUBLIETTE_ADMIN_TOKEN' : join(config.home, 'admin.token')
  return `
Oubliette is ready: ${baseUrl(config)}
  home         ${config.home}
  admin token  ${where}
  try it       ./oubliette run 'echo hello'
  connect      ./oubliette mcp setup claude-code
  stop         ./oubliette down
`
}

/** Checked before the set-up, which can take minutes. */
export async function assertFree(config: Settings, find = () => findServer(config)): Promise<void> {
  const { address } = config.config
  const { host, port } = parseAddress(address)
  const probe = createServer()
  try {
    await new Promise<void>((resolve, reject) => probe.once('error', reject).listen(port, host, resolve))
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    const other = code === 'EADDRINUSE' ? misdirected(config, await find()) : undefined
    if (other) throw other
    const why = code === 'EADDRINUSE' ? 'is in use by another program' : `is not available: ${code}`
    throw new Fault('conflict', `address ${address} ${why}`, {
      hint: 'set another address, for example OUBLIETTE_ADDRESS=127.0.0.1:8081',
      cause: error,
    })
  }
  await new Promise((resolve) => probe.close(resolve))
}

/** The error of a server that exited during its start: its last message. */
function startError(file: string, from: number): string {
  const lines = readFileSync(file).subarray(from).toString().trim().split('\n')
  const line = lines.findLast((text) => text.trim() !== '') ?? ''
  try {
    return String((JSON.parse(line) as { message?: unknown }).message)
  } catch {
    return (lines.find((text) => text.startsWith('oubliette: ')) ?? line).replace(/^oubliette: /, '')
  }
}

async function detach(config: Settings): Promise<void> {
  const file = logFile(config.home)
  mkdirSync(dirname(file), { recursive: true })
  rotate(file)
  const before = statSync(file, { throwIfNoEntry: false })?.size ?? 0
  const out = openSync(file, 'a', 0o600)
  const program = join(import.meta.dirname, '../main.ts')
  const child = spawn(process.execPath, [...process.execArgv, program, 'serve', '--log-file', file], {
    cwd: checkout,
    detached: true,
    stdio: ['ignore', out, out],
  })
  closeSync(out)
  let ended = false
  child.once('exit', () => {
    ended = true
  })
  child.unref()
  if (await untilReady(config, ready_deadline_ms, () => ended)) return
  const reason = ended
    ? `the server exited: ${startError(file, before)}`
    : `the server is not ready after ${ready_deadline_ms / 1000} s; see "./oubliette status"`
  throw new Fault('unavailable', reason, { hint: `see the log ${file}` })
}

async function runInForeground(config: Settings): Promise<void> {
  const { serve } = await import('./serve.ts')
  let over = false
  const served = serve(config).finally(() => {
    over = true
  })
  const printed = untilReady(config, Number.POSITIVE_INFINITY, () => over).then((ready) => {
    if (ready) process.stdout.write(`${banner(config)}\nPress Ctrl-C to stop the server.\n`)
  })
  await Promise.all([served, printed])
}

/** Sets up the machine as root, then restarts this command as the user, beginning with the search for a running server. */
async function runAs(name: string, config: Settings, detached: boolean): Promise<void> {
  const account = accountNamed(name)
  if (account.uid === process.getuid?.()) return
  if (!isRoot()) throw new Usage('--user requires root')
  giveHome(config.home, account)
  await setUp(config, createProgress(), { logs: '/var/log/oubliette' })
  assertEngine(config.docker_host, account)
  restartAs(account, ['up', ...(detached ? ['--detach'] : [])], { OUBLIETTE_HOME: config.home })
}

/** Always a notice for root; a question only on a terminal, and only while the owner of the home can still change. */
async function offerUser(config: Settings): Promise<string | undefined> {
  if (!isRoot()) return undefined
  const owner = statSync(config.home, { throwIfNoEntry: false })?.uid ?? 0
  process.stdout.write(
    `The server runs as root, which is not required. "./oubliette up --user NAME"
runs it as a user of the group docker (docs/unprivileged.md).\n${
      owner === 0
        ? ''
        : `${config.home} belongs to uid ${owner}.\nAfter a start as root, a server of that user can no longer use it.\n`
    }`,
  )
  if (!process.stdin.isTTY || !process.stdout.isTTY || !isNew(config.home)) return undefined
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  try {
    return (await terminal.question('User name (empty to run as root): ')).trim() || undefined
  } finally {
    terminal.close()
  }
}

async function run(args: string[]): Promise<number> {
  const { values } = options(args, {
    detach: { type: 'boolean', short: 'd', default: false },
    user: { type: 'string' },
  })
  const config = serverSettings()
  if (values.user !== undefined) await runAs(values.user, config, values.detach)
  const holder = homeHolder(config.home)
  if (holder) {
    const other = misdirected(config, { holder, state: undefined, is_ours: false })
    if (other) throw other
    const ready = await untilReady(config, ready_deadline_ms, () => !homeHolder(config.home))
    if (!ready)
      throw new Fault(
        'unavailable',
        `the server of ${config.home} (process ${holder.pid}) is running but not ready`,
        { hint: 'run "./oubliette status" to see what is missing, or "./oubliette down" to stop it' },
      )
    process.stdout.write(`The server is already running (process ${holder.pid}).\n${banner(config)}`)
    return 0
  }
  for (const warning of config.warnings) process.stderr.write(`oubliette: warning: ${warning}\n`)
  checkHome(config.home)
  await assertFree(config)
  const user = await offerUser(config)
  if (user !== undefined) await runAs(user, config, values.detach)
  ensureHome(config.home)
  await setUp(config, createProgress())
  if (!values.detach) {
    await runInForeground(config)
    return 0
  }
  await detach(config)
  process.stdout.write(banner(config))
  return 0
}

export const up: Command = {
  about: 'Set up this machine and run the server',
  usage: '[OPTIONS]',
  details: `Installs missing parts (on Debian and Ubuntu as root: a Docker engine; everywhere: container images), then runs the
server in the foreground until Ctrl-C.`,
  options: [
    ['-d, --detach', 'Run the server in the background and return when it is ready'],
    [
      '--user NAME',
      'Set up as root, then run the server as this user, who must exist and be in the group docker. A new OUBLIETTE_HOME becomes the property of the user; one with data of another user is refused. Requires root',
    ],
  ],
  examples: ['./oubliette up', './oubliette up --detach', './oubliette up --detach --user oubliette'],
  run,
}
