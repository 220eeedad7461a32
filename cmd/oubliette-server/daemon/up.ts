// `./oubliette up`: from a bare machine to a server that is ready, saying on the way what takes long and at the end where
// it is. Whatever is there already is used as it is.
import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { parseAddress, type Settings } from '../../../internal/config/load.ts'
import { Fault } from '../../../internal/fault.ts'
import { homeHolder } from '../../../internal/home-lock.ts'
import { type Command, checkout, options, serverSettings, Usage } from '../command.ts'
import { createProgress } from '../setup/progress.ts'
import { setUp } from '../setup/set-up.ts'
import { accountNamed, assertEngine, giveHome, isNew, startAgainAs } from '../setup/unprivileged.ts'
import { baseUrl, untilReady } from './daemon.ts'
import { logFile, rotate } from './log-file.ts'

const ready_deadline_ms = 120_000

const quoted = (path: string) => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`)

/** Never the secret itself: this ends up in terminals, logs and screenshots. */
export function banner(config: Settings): string {
  const url = baseUrl(config)
  const file = join(config.home, 'admin.token')
  const where = config.admin_token ? 'in OUBLIETTE_ADMIN_TOKEN' : file
  const secret = config.admin_token ? '$OUBLIETTE_ADMIN_TOKEN' : `$(cat ${quoted(file)})`
  return `
Oubliette is ready: ${url}
  home         ${config.home}
  admin token  ${where}
  stop with    ./oubliette down

Connect Claude Code:
  claude mcp add --transport http oubliette ${url}/mcp --header "Authorization: Bearer ${secret}"
`
}

/** Found out before the set-up rather than after it. */
async function assertFree(address: string): Promise<void> {
  const { host, port } = parseAddress(address)
  const probe = createServer()
  try {
    await new Promise<void>((resolve, reject) => probe.once('error', reject).listen(port, host, resolve))
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    const why = code === 'EADDRINUSE' ? 'is in use by another program' : `cannot be used: ${code}`
    throw new Fault('conflict', `the address ${address} ${why}`, {
      hint: 'choose another one with OUBLIETTE_ADDRESS=127.0.0.1:8081',
      cause: error,
    })
  }
  await new Promise((resolve) => probe.close(resolve))
}

/** The last words of a server that ended during its start. */
function lastWords(file: string, from: number): string {
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
  if (await untilReady(baseUrl(config), ready_deadline_ms, () => ended)) return
  const reason = ended ? `ended: ${lastWords(file, before)}` : 'does not become ready; see ./oubliette status'
  throw new Fault('unavailable', `the server ${reason}`, { hint: `its log is ${file}` })
}

async function stay(config: Settings): Promise<void> {
  const { serve } = await import('./serve.ts')
  let over = false
  const served = serve(config).finally(() => {
    over = true
  })
  const told = untilReady(baseUrl(config), Number.POSITIVE_INFINITY, () => over).then((ready) => {
    if (ready) process.stdout.write(`${banner(config)}  (Ctrl-C stops it too)\n`)
  })
  await Promise.all([served, told])
}

/** What needs root is done as root; the rest, from looking for a running server on, by the user. */
async function runAs(name: string, config: Settings, detached: boolean): Promise<void> {
  const account = accountNamed(name)
  if (account.uid === process.getuid?.()) return
  if (process.getuid?.() !== 0) throw new Usage('--user can be used by root only')
  giveHome(config.home, account)
  await setUp(config, createProgress(), { logs: '/var/log/oubliette' })
  assertEngine(config.docker_host, account)
  startAgainAs(account, ['up', ...(detached ? ['--detach'] : [])], { OUBLIETTE_HOME: config.home })
}

/** Told to everybody who is root, asked only of somebody who can answer, and only while the home can still be given. */
async function offerUser(config: Settings): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return undefined
  const owner = statSync(config.home, { throwIfNoEntry: false })?.uid ?? 0
  process.stdout.write(
    `The server runs as root. It does not need to: ./oubliette up --user NAME runs it as a user of the group docker (docs/unprivileged.md).\n${
      owner === 0
        ? ''
        : `${config.home} belongs to uid ${owner}: a server of that user cannot use it any more after one of root.\n`
    }`,
  )
  if (!process.stdin.isTTY || !process.stdout.isTTY || !isNew(config.home)) return undefined
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  try {
    return (await terminal.question('Name of that user (empty: run as root): ')).trim() || undefined
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
    const ready = await untilReady(baseUrl(config), ready_deadline_ms, () => !homeHolder(config.home))
    if (!ready)
      throw new Fault(
        'unavailable',
        `a server (process ${holder.pid}) has ${config.home} but does not become ready`,
        {
          hint: './oubliette status says what is missing; ./oubliette down stops it',
        },
      )
    process.stdout.write(`Already running (process ${holder.pid}).\n${banner(config)}`)
    return 0
  }
  for (const warning of config.warnings) process.stderr.write(`oubliette: warning: ${warning}\n`)
  await assertFree(config.config.address)
  const user = await offerUser(config)
  if (user !== undefined) await runAs(user, config, values.detach)
  await setUp(config, createProgress())
  if (!values.detach) {
    await stay(config)
    return 0
  }
  await detach(config)
  process.stdout.write(banner(config))
  return 0
}

export const up: Command = {
  about: 'Set everything up on this machine and run the server.',
  usage: '[--detach] [--user NAME]',
  help: `Installs what is missing (a Docker engine on Debian and Ubuntu as root, container images), then runs the server in
the foreground until Ctrl-C.

  -d, --detach  Run it in the background instead, and return when it is ready.
  --user NAME   For root: set up as root, then run the server as this user, who must exist and be in the group docker.
                A new OUBLIETTE_HOME is given to that user; one with data of another user is refused.`,
  run,
}
