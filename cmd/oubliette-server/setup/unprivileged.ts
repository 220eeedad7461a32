// `up --user NAME`: sets up the machine as root, then drops to an unprivileged user and restarts the command. As root, it
// changes only the owner of the home, and only while the home is new: root must not follow paths that a user can write.
import { execFileSync } from 'node:child_process'
import { accessSync, constants, lchownSync, lstatSync, readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Fault, messageOf } from '../../../internal/fault.ts'
import { makeDirectory } from '../../../internal/make-directory.ts'
import { checkout } from '../command.ts'

export type Account = { name: string; uid: number; gid: number; home: string; groups: number[] }

const outputOf = (program: string, args: string[]): string | undefined => {
  try {
    return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  } catch {
    return undefined
  }
}

export function accountNamed(name: string): Account {
  const [login, , uid, gid, , home] = outputOf('getent', ['passwd', '--', name])?.split(':') ?? []
  if (!login)
    throw new Fault('not_found', `user "${name}" does not exist`, {
      hint: `create it with "useradd --system --user-group --create-home --groups docker ${name}"`,
    })
  const groups = outputOf('id', ['-G', '--', login])?.split(' ').map(Number) ?? []
  const account = { name: login, uid: Number(uid), gid: Number(gid), home: home || '/', groups }
  if (account.uid === 0) throw new Fault('invalid', `user "${name}" is root`)
  if (account.gid === 0)
    throw new Fault('invalid', `the primary group of user "${name}" is root, which containers must not use`, {
      hint: `set another primary group with "usermod --gid GROUP ${name}"`,
    })
  return account
}

/** Whether the owner of a home can be changed: it does not exist, or is empty and belongs to root. */
export function isNew(home: string): boolean {
  const stats = lstatSync(home, { throwIfNoEntry: false })
  return !stats || (stats.isDirectory() && stats.uid === 0 && readdirSync(home).length === 0)
}

/** Refuses a home with data of another user: files of a running server or of containers must not change owners. */
export function giveHome(home: string, { name, uid, gid }: Account): void {
  if (isNew(home)) {
    // Parent directories keep the default mode, so that the user can traverse them.
    makeDirectory(dirname(home))
    makeDirectory(home, 0o700)
    // Does not follow a link that was created in the meantime.
    lchownSync(home, uid, gid)
    return
  }
  const owner = statSync(home).uid
  if (owner === uid) return
  throw new Fault('conflict', `OUBLIETTE_HOME ${home} holds data of another user (uid ${owner})`, {
    hint: `set another OUBLIETTE_HOME, or run "./oubliette down --all" and "chown -R ${name}: ${home}"`,
  })
}

/** An engine that is reached over TCP requires no group. */
export function assertEngine(docker_host: string | undefined, { name, uid, groups }: Account): void {
  const address = docker_host ?? 'unix:///var/run/docker.sock'
  if (!address.startsWith('unix://')) return
  const socket = address.slice('unix://'.length)
  const { uid: owner, gid, mode } = statSync(socket)
  if ((mode & 0o006) === 0o006 || owner === uid || ((mode & 0o060) === 0o060 && groups.includes(gid))) return
  throw new Fault('forbidden', `user "${name}" has no access to the Docker engine at ${socket}`, {
    hint: `add it to the group docker with "usermod --append --groups docker ${name}"`,
  })
}

/** Replaces this process by the same program, running as the user from its first instruction. */
export function restartAs(account: Account, args: string[], env: Record<string, string>): never {
  const main = join(checkout, 'cmd/oubliette-server/main.ts')
  // The user may have no access to the current directory of root.
  process.chdir(checkout)
  process.setgroups!(account.groups)
  process.setgid!(account.gid)
  process.setuid!(account.uid)
  try {
    accessSync(process.execPath, constants.X_OK)
    accessSync(main, constants.R_OK)
  } catch (error) {
    throw new Fault('unavailable', `user "${account.name}" cannot read ${checkout}: ${messageOf(error)}`, {
      hint: 'move the checkout to a directory that the user can read, for example /opt',
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
