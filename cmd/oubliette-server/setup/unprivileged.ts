// `up --user NAME`: root does the set-up that needs root, then becomes an ordinary user and starts again as that one. Of
// the home, root touches nothing but its owner, and that only while the home is new: what a user can write, root must
// not follow.
import { execFileSync } from 'node:child_process'
import { accessSync, constants, lchownSync, lstatSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Fault, messageOf } from '../../../internal/fault.ts'
import { checkout } from '../command.ts'

export type Account = { name: string; uid: number; gid: number; home: string; groups: number[] }

const said = (program: string, args: string[]): string | undefined => {
  try {
    return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  } catch {
    return undefined
  }
}

export function accountNamed(name: string): Account {
  const [login, , uid, gid, , home] = said('getent', ['passwd', '--', name])?.split(':') ?? []
  if (!login)
    throw new Fault('not_found', `there is no user "${name}" on this machine`, {
      hint: `useradd --system --user-group --create-home --groups docker ${name}`,
    })
  const groups = said('id', ['-G', '--', login])?.split(' ').map(Number) ?? []
  const account = { name: login, uid: Number(uid), gid: Number(gid), home: home || '/', groups }
  if (account.uid === 0) throw new Fault('invalid', `user "${name}" is root`)
  if (account.gid === 0)
    throw new Fault(
      'invalid',
      `the primary group of user "${name}" is root's, which containers cannot have`,
      {
        hint: `give it one of its own: usermod --gid GROUP ${name}`,
      },
    )
  return account
}

/** Whether a home can be given to a user: there is nothing in it that belongs to somebody. */
export function isNew(home: string): boolean {
  const stats = lstatSync(home, { throwIfNoEntry: false })
  return !stats || (stats.isDirectory() && stats.uid === 0 && readdirSync(home).length === 0)
}

/** A home with data of another user is refused: files of a running server or of containers must not change owners. */
export function giveHome(home: string, { name, uid, gid }: Account): void {
  if (isNew(home)) {
    // What is above it stays open to pass through.
    mkdirSync(dirname(home), { recursive: true })
    mkdirSync(home, { recursive: true, mode: 0o700 })
    // Not through a link that somebody put there in the meantime.
    lchownSync(home, uid, gid)
    return
  }
  const owner = statSync(home).uid
  if (owner === uid) return
  throw new Fault('conflict', `OUBLIETTE_HOME ${home} holds data of another user (uid ${owner})`, {
    hint: `choose another OUBLIETTE_HOME, or stop everything with "./oubliette down --all" and give it away with "chown -R ${name}: ${home}"`,
  })
}

/** An engine that is reached over TCP asks for no group. */
export function assertEngine(docker_host: string | undefined, { name, uid, groups }: Account): void {
  const address = docker_host ?? 'unix:///var/run/docker.sock'
  if (!address.startsWith('unix://')) return
  const socket = address.slice('unix://'.length)
  const { uid: owner, gid, mode } = statSync(socket)
  if ((mode & 0o006) === 0o006 || owner === uid || ((mode & 0o060) === 0o060 && groups.includes(gid))) return
  throw new Fault('forbidden', `user "${name}" may not use the Docker engine at ${socket}`, {
    hint: `usermod --append --groups docker ${name}`,
  })
}

/** This process ends here: the same program runs on in its place, as the user from its first instruction. */
export function startAgainAs(account: Account, args: string[], env: Record<string, string>): never {
  const main = join(checkout, 'cmd/oubliette-server/main.ts')
  // The directory of root may be closed to the user.
  process.chdir(checkout)
  process.setgroups!(account.groups)
  process.setgid!(account.gid)
  process.setuid!(account.uid)
  try {
    accessSync(process.execPath, constants.X_OK)
    accessSync(main, constants.R_OK)
  } catch (error) {
    throw new Fault('unavailable', `user "${account.name}" cannot read ${checkout}: ${messageOf(error)}`, {
      hint: 'put the checkout where the user can read it, for example below /opt',
      cause: error,
    })
  }
  const inherited = Object.entries(process.env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  )
  return process.execve!(process.execPath, [process.execPath, ...process.execArgv, main, ...args], {
    ...Object.fromEntries(inherited),
    HOME: account.home,
    USER: account.name,
    LOGNAME: account.name,
    ...env,
  })
}
