// The files of the home: modes and owners, missing directories, stale locks, and the free space of the disks.
import { constants, existsSync, lstatSync } from 'node:fs'
import { lchown, mkdir, open, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { homeHolder, lockHome } from '../../../../internal/home-lock.ts'
import { readPidFile, removeStaleLocks } from '../../../../internal/store/embedded/postmaster.ts'
import { requireWhole } from '../../backup/restore.ts'
import { isHome } from '../facts.ts'
import {
  type Check,
  type Finding,
  ofFault,
  ok,
  plural,
  problem,
  quoted,
  skipped,
  warning,
} from '../finding.ts'

const mebibyte = 1024 * 1024
/** Below this, builds of images fail. */
const engineFreeMb = 2048

const octal = (mode: number) => (mode & 0o777).toString(8).padStart(4, '0')

/** With a secret in them. The config file is checked where it is read, because not each has one. */
const secretFiles = ['admin.token', 'session.secret', 'secrets.key', 'postgres/password', 'logs/server.log']
/** What the first start creates. */
const directories = ['projects', 'sockets', 'client']

/** By a handle, without following a link: the file of a user must not lead to one of the system. */
async function setMode(path: string, mode: number, owner: number): Promise<void> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    const stats = await handle.stat()
    if (stats.isFile() && stats.nlink > 1) throw new Error(`${path} has several names`)
    if (stats.uid !== owner) throw new Error(`${path} belongs to uid ${stats.uid}`)
    await handle.chmod(mode)
  } finally {
    await handle.close()
  }
}

function modeFinding(path: string, mode: number, found: number, owner: number): Finding {
  const how = (found & 0o022) !== 0 ? 'written' : 'read'
  return problem(`${path} can be ${how} by other users (mode ${octal(found)})`, {
    command: `chmod ${octal(mode).slice(1)} ${quoted(path)}`,
    async fix() {
      await setMode(path, mode, owner)
      return `set the mode of ${path} to ${octal(mode)}`
    },
  })
}

export const permissions: Check = {
  name: 'permissions',
  deadline_ms: 3_000,
  async run({ home, instance }) {
    const self = process.getuid?.() ?? 0
    const stats = lstatSync(home, { throwIfNoEntry: false })
    if (!stats) return [ok(`${home} does not exist; the first start creates it`)]
    if (!stats.isDirectory())
      return [
        problem(`OUBLIETTE_HOME ${home} is not a directory`, { hint: 'set OUBLIETTE_HOME to a directory' }),
      ]
    const found: Finding[] = []
    if (self !== 0 && stats.uid !== self)
      found.push(
        problem(`${home} belongs to another user (uid ${stats.uid})`, {
          hint: 'run Oubliette as that user, or set another OUBLIETTE_HOME',
        }),
      )
    if ((stats.mode & 0o077) !== 0) found.push(modeFinding(home, 0o700, stats.mode, stats.uid))
    for (const name of secretFiles) {
      const path = join(home, name)
      const file = lstatSync(path, { throwIfNoEntry: false })
      if (file?.isFile() && (file.mode & 0o077) !== 0)
        found.push(modeFinding(path, 0o600, file.mode, file.uid))
    }
    if (instance !== undefined)
      for (const name of directories)
        if (!existsSync(join(home, name))) found.push(missing(join(home, name), stats))
    return found.length > 0 ? found : [ok(`only uid ${stats.uid} can use ${home}`)]
  },
}

function missing(path: string, { uid, gid }: { uid: number; gid: number }): Finding {
  return problem(`the directory ${path} is missing`, {
    command: `mkdir -m 755 ${quoted(path)}`,
    async fix() {
      await mkdir(path, { mode: 0o755 })
      if (process.getuid?.() === 0) await lchown(path, uid, gid)
      return `created ${path}`
    },
  })
}

/** A record of a server that was killed: its lock ended with it. */
function staleRecord(home: string): Finding[] {
  const file = join(home, 'daemon.json')
  if (!existsSync(file) || homeHolder(home)) return []
  return [
    warning(`${file} names a server that does not run any more`, {
      command: `rm ${quoted(file)}`,
      async fix() {
        // Held meanwhile, so that no server starts; its release removes the record.
        lockHome(home).release()
        return `removed ${file}, which no process holds`
      },
    }),
  ]
}

export const locks: Check = {
  name: 'locks',
  deadline_ms: 3_000,
  async run(facts) {
    const { home } = facts
    if (!isHome(home)) return [skipped('the home is not a directory')]
    if (!existsSync(home)) return [ok('none')]
    try {
      requireWhole(home)
    } catch (error) {
      return [ofFault(error)]
    }
    const found = staleRecord(home)
    const embedded = await facts.cluster()
    if (embedded && embedded.pids.length === 0) {
      const seen = readPidFile(embedded.cluster)
      if (seen)
        found.push(
          warning(`the lock of the embedded PostgreSQL names process ${seen.pid}, which is not its server`, {
            command: `rm ${quoted(join(embedded.cluster.data, 'postmaster.pid'))}`,
            async fix() {
              const held = lockHome(home)
              try {
                removeStaleLocks(embedded.cluster)
              } finally {
                held.release()
              }
              return 'removed the lock files of the embedded PostgreSQL, which no process holds'
            },
          }),
        )
    }
    return found.length > 0
      ? found
      : [ok(homeHolder(home) ? 'the server holds the home' : 'nothing holds the home')]
  },
}

async function freeMb(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path)
  return Math.floor((bavail * bsize) / mebibyte)
}

const shown = (mb: number) => plural(mb, 'MiB', 'MiB')

export const disk: Check = {
  name: 'disk',
  deadline_ms: 5_000,
  async run(facts) {
    const { home, settings } = facts
    const wanted = settings.config.min_free_disk_mb
    const found: Finding[] = []
    const free = await freeMb(existsSync(home) ? home : join(home, '..')).catch(() => undefined)
    if (free === undefined) found.push(skipped(`${home} cannot be read`))
    else if (free < wanted)
      found.push(
        problem(`${shown(free)} free for ${home}, less than min_free_disk_mb (${wanted})`, {
          command: `du -xh --max-depth=2 ${quoted(home)} | sort -h | tail`,
        }),
      )
    const directory = (await facts.engine().catch(() => undefined))?.data_directory
    const engine = directory ? await freeMb(directory).catch(() => undefined) : undefined
    if (directory && engine !== undefined && engine < engineFreeMb)
      found.push(
        warning(`${shown(engine)} free for the engine in ${directory}; builds of images may fail`, {
          command: 'docker image prune',
        }),
      )
    if (found.length > 0) return found
    return [
      ok(
        `${shown(free!)} free for the home${engine === undefined ? '' : `, ${shown(engine)} for the engine`}`,
      ),
    ]
  },
}
