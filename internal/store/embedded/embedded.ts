// A PostgreSQL of our own: the real server, in `OUBLIETTE_HOME/postgres`, on a Unix socket that only the daemon and
// the server's account can reach, with a password that only they can read. It promises durability (every commit is on
// the disk), to start where the last run ended however that was, and to run on when the daemon is killed: the next
// daemon finds it and goes on using it. Who may start it is decided by the home's lock, which the caller holds.
import { spawn } from 'node:child_process'
import { closeSync, copyFileSync, existsSync, openSync, readFileSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, messageOf } from '../../fault.ts'
import { type Log, Secret } from '../../log.ts'
import { type Account, accountFor } from './account.ts'
import { programs } from './binaries.ts'
import {
  type Cluster,
  directoryOf,
  ensureCluster,
  environment,
  here,
  knownCluster,
  makeDirectory,
} from './cluster.ts'
import {
  endLeftovers,
  isAlive,
  processesOf,
  readPidFile,
  removeStaleLocks,
  shutDown,
  within,
} from './postmaster.ts'

/** In the command line, so that they win over the files and a changed release is told by comparing it. */
const settings = {
  listen_addresses: '',
  // Relative to the data directory: the path above it may be closed to the server's account.
  unix_socket_directories: '..',
  unix_socket_permissions: '0700',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  max_connections: '100',
  shared_buffers: '64MB',
  max_wal_size: '256MB',
  min_wal_size: '32MB',
  io_method: 'sync',
  jit: 'off',
  max_logical_replication_workers: '0',
  timezone: 'UTC',
  log_timezone: 'UTC',
  // Values of rows and statements are the users' data: they stay out of the log.
  log_error_verbosity: 'terse',
  log_min_error_statement: 'panic',
  log_checkpoints: 'off',
}
const startSeconds = 120
const logBytes = 8 * 1024 * 1024
const watchMilliseconds = 1000

export type Embedded = {
  url: Secret
  /** Did it run already, left behind by a daemon that was killed? */
  reused: boolean
  pid(): number
  stop(): Promise<void>
}

type Ground = { cluster: Cluster; command: string[]; account: Account | undefined; log: Log }

/** Keeps one older part. The server appends, so the file can be emptied under it. */
function boundLog(file: string): void {
  if (!existsSync(file) || statSync(file).size < logBytes) return
  copyFileSync(file, `${file}.1`)
  truncateSync(file)
}

function lastWords(file: string): string {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : []
  const fatal = lines.findLast((line) => /FATAL|PANIC|error while loading/.test(line)) ?? lines.at(-1)
  return fatal?.replace(/^.*?(FATAL|PANIC): +/, '') ?? 'it said nothing'
}

/** In a session of its own: Ctrl-C in the daemon's terminal must not end it before the daemon has drained. */
async function launch({ cluster, command, account }: Ground): Promise<number> {
  boundLog(cluster.log_file)
  const output = openSync(cluster.log_file, 'a', 0o600)
  const child = spawn(command[0]!, command.slice(1), {
    cwd: cluster.data,
    env: environment,
    detached: true,
    stdio: ['ignore', output, output],
    ...account,
  })
  closeSync(output)
  let ended: string | undefined
  child.on('error', (error) => {
    ended = messageOf(error)
  })
  child.on('exit', () => {
    ended ??= lastWords(cluster.log_file)
  })
  child.unref()
  const ready = () => {
    const seen = readPidFile(cluster)
    return ended !== undefined || (seen?.pid === child.pid && seen?.status === 'ready')
  }
  if (!(await within(startSeconds * 1000, ready))) ended ??= `not ready after ${startSeconds} seconds`
  if (ended !== undefined || child.pid === undefined)
    throw new Fault('unavailable', `the embedded PostgreSQL did not start: ${ended}`, {
      hint: `its log is ${cluster.log_file}`,
    })
  return child.pid
}

/** The postmaster that runs already, if it runs as we would run it and does not stop just now. */
async function adopt({ cluster, command, log }: Ground): Promise<number | undefined> {
  const found = readPidFile(cluster)
  const running = (await processesOf(cluster)).find(({ pid }) => pid === found?.pid)
  if (!running) return undefined
  const settled = () => !isAlive(running.pid) || readPidFile(cluster)?.status === 'ready'
  const fits = running.command === command.join(' ')
  if (fits && (await within(startSeconds * 1000, settled)) && isAlive(running.pid)) return running.pid
  if (isAlive(running.pid)) {
    log.info('the running PostgreSQL is of another release: restarting it', { pid: running.pid })
    await shutDown(cluster, running.pid)
  }
  return undefined
}

async function bringUp(ground: Ground): Promise<{ pid: number; reused: boolean }> {
  const { cluster } = ground
  const running = await adopt(ground)
  if (running !== undefined) return { pid: running, reused: true }
  if (!(await endLeftovers(cluster, 5_000)))
    throw new Fault('unavailable', `processes of the PostgreSQL in ${cluster.data} do not end`)
  removeStaleLocks(cluster)
  return { pid: await launch(ground), reused: false }
}

/** Starts it again when it dies under us, and keeps its log bounded. */
function watch(ground: Ground, first: number) {
  let pid = first
  let busy: Promise<void> | undefined
  const look = async () => {
    boundLog(ground.cluster.log_file)
    if (isAlive(pid)) return
    ground.log.error('the embedded PostgreSQL died: starting it again', { pid })
    pid = (await bringUp(ground)).pid
  }
  const timer = setInterval(() => {
    busy ??= look()
      .catch((error: unknown) => ground.log.error('the embedded PostgreSQL is down', { error }))
      .finally(() => {
        busy = undefined
      })
  }, watchMilliseconds)
  timer.unref()
  return {
    pid: () => pid,
    end: async () => {
      clearInterval(timer)
      await busy
    },
  }
}

export async function startEmbedded({ home, log }: { home: string; log: Log }): Promise<Embedded> {
  const started = performance.now()
  const directory = directoryOf(home)
  const account = await accountFor(directory)
  await makeDirectory(directory)
  const tools = await programs(account, directory)
  const cluster = await ensureCluster(home, tools, account, log)
  const command = [
    join(tools.bin, 'postgres'),
    '-D',
    here(cluster.data),
    '-c',
    `cluster_name=${cluster.name}`,
  ]
  for (const [name, value] of Object.entries(settings)) command.push('-c', `${name}=${value}`)
  const ground = { cluster, command, account, log }
  const { pid, reused } = await bringUp(ground)
  log.info('embedded PostgreSQL is ready', { pid, reused, ms: Math.round(performance.now() - started) })
  const watched = watch(ground, pid)
  let stopping: Promise<void> | undefined
  const stop = async () => {
    await watched.end()
    const how = await shutDown(cluster, watched.pid())
    if (how !== 'fast') log.warn('the embedded PostgreSQL had to be stopped hard', { how })
  }
  return {
    url: new Secret(cluster.url),
    reused,
    pid: watched.pid,
    stop: () => {
      stopping ??= stop()
      return stopping
    },
  }
}

/** Whether this home has had a PostgreSQL of its own. */
export const hasEmbedded = (home: string): boolean => existsSync(join(directoryOf(home), 'password'))

/** For `down` after a daemon that was killed: true if there was one to stop. */
export async function stopEmbedded(home: string): Promise<boolean> {
  if (!hasEmbedded(home)) return false
  const cluster = await knownCluster(home)
  const pid = readPidFile(cluster)?.pid
  const running = (await processesOf(cluster)).some((one) => one.pid === pid)
  if (running && pid !== undefined) await shutDown(cluster, pid)
  return running
}
