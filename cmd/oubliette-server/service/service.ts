// `./oubliette service`: the server as a service of systemd, of the system or of one user.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { Fault } from '../../../internal/fault.ts'
import { homeHolder } from '../../../internal/home-lock.ts'
import { isRoot } from '../../../internal/lib/is-root.ts'
import { type Command, checkout, options, Usage } from '../command.ts'
import { closeSeconds } from '../daemon/stop.ts'
import { serverSettings } from '../settings.ts'
import { accountNamed } from '../setup/unprivileged.ts'
import { renderUnit } from './unit.ts'

const name = 'oubliette.service'
const actions = ['install', 'remove', 'status'] as const

const say = (text: string) => process.stdout.write(`${text}\n`)

const fileOf = (is_user: boolean): string =>
  is_user
    ? join(process.env.XDG_CONFIG_HOME || join(homedir(), '.config'), 'systemd/user', name)
    : join('/etc/systemd/system', name)

function requireSystemd(): void {
  if (!existsSync('/run/systemd/system'))
    throw new Fault('unavailable', 'this machine does not run systemd', {
      hint: 'use "./oubliette up --detach", or "./oubliette service install --print" for another machine',
    })
}

/** Returns the exit code. */
function systemctl(is_user: boolean, ...args: string[]): number {
  const { status, error } = spawnSync('systemctl', [...(is_user ? ['--user'] : []), ...args], {
    stdio: 'inherit',
  })
  if (error) throw new Fault('unavailable', `cannot run systemctl: ${error.message}`)
  return status ?? 1
}

function require0(code: number, what: string): void {
  if (code !== 0) throw new Fault('unavailable', `"systemctl ${what}" failed with exit code ${code}`)
}

function unitOf(is_user: boolean, run_as: string | undefined): { home: string; text: string } {
  const { home, config, sources } = serverSettings()
  const text = renderUnit({
    checkout,
    home,
    address: sources.address === 'environment' ? config.address : undefined,
    account: run_as === undefined ? undefined : accountNamed(run_as).name,
    is_user,
    stop_seconds: config.shutdown_seconds + closeSeconds,
  })
  return { home, text }
}

function install(is_user: boolean, home: string, text: string): number {
  requireSystemd()
  if (!is_user && !isRoot())
    throw new Fault('forbidden', 'a service of the system requires root', {
      hint: 'use --user for a service of your own',
    })
  const holder = homeHolder(home)
  if (holder)
    throw new Fault('conflict', `a server of ${home} is running (process ${holder.pid})`, {
      hint: 'stop it with "./oubliette down", and run this command again',
    })
  const file = fileOf(is_user)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(`${file}.new`, text, { mode: 0o644 })
  renameSync(`${file}.new`, file)
  say(`Wrote ${file}.`)
  require0(systemctl(is_user, 'daemon-reload'), 'daemon-reload')
  require0(systemctl(is_user, 'enable', '--now', name), `enable --now ${name}`)
  say(`The service runs. Its log: journalctl ${is_user ? '--user ' : ''}-u ${name}`)
  if (is_user) say('It ends when you log out, unless you run "loginctl enable-linger".')
  return 0
}

function remove(is_user: boolean): number {
  requireSystemd()
  const file = fileOf(is_user)
  if (!existsSync(file)) {
    say(`${file} does not exist.`)
    return 0
  }
  require0(systemctl(is_user, 'disable', '--now', name), `disable --now ${name}`)
  rmSync(file)
  require0(systemctl(is_user, 'daemon-reload'), 'daemon-reload')
  say(`Removed ${file}. The home and the containers are kept.`)
  return 0
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    {
      user: { type: 'boolean', default: false },
      'run-as': { type: 'string' },
      print: { type: 'boolean', default: false },
    },
    true,
  )
  const [given, ...rest] = positionals
  const action = actions.find((one) => one === given)
  if (!action)
    throw new Usage(
      given === undefined ? 'missing ACTION' : `unknown action "${given}"`,
      `actions: ${actions.join(', ')}`,
    )
  if (rest.length > 0) throw new Usage(`unexpected argument "${rest[0]}"`)
  const { user: is_user, 'run-as': run_as } = values
  if (action !== 'install' && (values.print || run_as !== undefined))
    throw new Usage('--print and --run-as apply to install only')
  if (is_user && run_as !== undefined) throw new Usage('--user and --run-as exclude each other')
  if (action === 'remove') return remove(is_user)
  if (action === 'status') {
    requireSystemd()
    return systemctl(is_user, '--no-pager', 'status', name)
  }
  const { home, text } = unitOf(is_user, run_as)
  if (!values.print) return install(is_user, home, text)
  process.stdout.write(text)
  return 0
}

export const service: Command = {
  about: 'Run the server as a service of systemd',
  usage: 'install|remove|status [OPTIONS]',
  details: `install writes a unit for this checkout, OUBLIETTE_HOME and OUBLIETTE_ADDRESS, enables it and starts it. Containers survive stops and restarts of the service. Run "./oubliette up" once before, which sets up the machine.

Further variables, such as DATABASE_URL and keys of providers, belong into /etc/oubliette/environment, or ~/.config/oubliette/environment with --user (mode 0600).`,
  options: [
    ['--user', 'A service of the current user instead of the system'],
    ['--run-as NAME', 'User of a service of the system, who must be in the group docker; root if omitted'],
    ['--print', 'Only print the unit'],
  ],
  examples: [
    './oubliette service install --print',
    './oubliette service install --run-as oubliette',
    './oubliette service status',
    './oubliette service remove',
  ],
  run,
}
