// The embedded PostgreSQL: a regular server in `OUBLIETTE_HOME/postgres`, on a Unix socket that only the daemon and the
// account of the server can access, with a password that only they can read. Every commit is synced to disk. It recovers
// from any kind of shutdown, and keeps running when the daemon is killed: the next daemon uses it again. The caller holds
// the lock of the home.
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

/** On the command line, so that they override the files, and so that comparing command lines detects a changed release. */
const settings = {
  listen_addresses: '',
  // Relative to the data directory: the account of the server may lack access to the parent directories.
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
  // Rows and statements contain user data, which must not be logged.
  log_error_verbosity: 'terse',
  log_min_error_statement: 'panic',
  log_checkpoints: 'off',
}
const startSeconds = 120
const logBytes = 8 * 1024 * 1024
const watchMilliseconds = 1000

export type Embedded = {
  url: Secret
  /** It was already running, started by a daemon that was killed. */
  reused: boolean
  pid(): number
  stop(): Promise<void>
}

type Ground = { cluster: Cluster; command: string[]; account: Account | undefined; log: Log }

/** Rotates the log, keeping one older file. The server appends, so truncating is safe. */
function boundLog(file: string): void {
  if (!existsSync(file) || statSync(file).size < logBytes) return
  copyFileSync(file, `${file}.1`)
  truncateSync(file)
}

function lastWords(file: string): string {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : []
  const fatal = lines.findLast((line) => /FATAL|PANIC|error while loading/.test(line)) ?? lines.at(-1)
  return fatal?.replace(/^.*?(FATAL|PANIC): +/, '') ?? 'no message in its log'
}

/** In a separate session: Ctrl-C in the terminal of the daemon must not stop it before the daemon has drained. */
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
    throw new Fault('unavailable', `failed to start the embedded PostgreSQL: ${ended}`, {
      hint: `see its log, ${cluster.log_file}`,
    })
  return child.pid
}

/** The running postmaster, if it has the expected command line and is not shutting down. */
async function adopt({ cluster, command, log }: Ground): Promise<number | undefined> {
  const found = readPidFile(cluster)
  const running = (await processesOf(cluster)).find(({ pid }) => pid === found?.pid)
  if (!running) return undefined
  const settled = () => !isAlive(running.pid) || readPidFile(cluster)?.status === 'ready'
  const fits = running.command === command.join(' ')
  if (fits && (await within(startSeconds * 1000, settled)) && isAlive(running.pid)) return running.pid
  if (isAlive(running.pid)) {
    log.info('restarting the embedded PostgreSQL, which another release started', { pid: running.pid })
    await shutDown(cluster, running.pid)
  }
  return undefined
}

async function bringUp(ground: Ground): Promise<{ pid: number; reused: boolean }> {
  const { cluster } = ground
  const running = await adopt(ground)
  if (running !== undefined) return { pid: running, reused: true }
  if (!(await endLeftovers(cluster, 5_000)))
    throw new Fault('unavailable', `failed to stop the processes of the PostgreSQL in ${cluster.data}`)
  removeStaleLocks(cluster)
  return { pid: await launch(ground), reused: false }
}

/** Restarts it when it exits, and rotates its log. */
function watch(ground: Ground, first: number) {
  let pid = first
  let busy: Promise<void> | undefined
  const look = async () => {
    boundLog(ground.cluster.log_file)
    if (isAlive(pid)) return
    ground.log.error('the embedded PostgreSQL exited, restarting it', { pid })
    pid = (await bringUp(ground)).pid
  }
  const timer = setInterval(() => {
    busy ??= look()
      .catch((error: unknown) =>
        ground.log.error('failed to restart the embedded PostgreSQL, retrying', { error }),
      )
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
  log.info('the embedded PostgreSQL is ready', { pid, reused, ms: Math.round(performance.now() - started) })
  const watched = watch(ground, pid)
  let stopping: Promise<void> | undefined
  const stop = async () => {
    await watched.end()
    const how = await shutDown(cluster, watched.pid())
    if (how !== 'fast') log.warn('failed to stop the embedded PostgreSQL gracefully', { how })
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

/** Whether this home has an embedded PostgreSQL. */
export const hasEmbedded = (home: string): boolean => existsSync(join(directoryOf(home), 'password'))

/** For `down` after a daemon was killed: true if a server was running. */
export async function stopEmbedded(home: string): Promise<boolean> {
  if (!hasEmbedded(home)) return false
  const cluster = await knownCluster(home)
  const pid = readPidFile(cluster)?.pid
  const running = (await processesOf(cluster)).some((one) => one.pid === pid)
  if (running && pid !== undefined) await shutDown(cluster, pid)
  return running
}
