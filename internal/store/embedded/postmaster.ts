// The processes of the server. A pid in a file may have been reused, so a process belongs to the cluster only if its command
// line contains the name of the cluster, which the server puts into those of all its processes.
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { Cluster } from './cluster.ts'

type Process = { pid: number; command: string }

/** Undefined if the process has exited meanwhile; a zombie has an empty command line. */
function readProc(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

async function processes(): Promise<Process[]> {
  if (process.platform !== 'linux') {
    const { stdout } = await promisify(execFile)('ps', ['-axwwo', 'pid=,command='])
    return stdout.split('\n').map((line) => {
      const [, pid, command] = /^\s*(\d+)\s(.*)$/.exec(line) ?? []
      return { pid: Number(pid), command: command ?? '' }
    })
  }
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => {
      const line = readProc(`/proc/${name}/cmdline`) ?? ''
      return { pid: Number(name), command: line.replace(/\0+$/, '').replaceAll('\0', ' ') }
    })
}

/** All processes of this cluster: the postmaster and its children, which may outlive it. */
export async function processesOf(cluster: Cluster): Promise<Process[]> {
  const inArguments = ` cluster_name=${cluster.name}`
  return (await processes()).filter(
    ({ command }) =>
      command.startsWith(`postgres: ${cluster.name}: `) ||
      (command.split(' ')[0]!.endsWith('/postgres') && command.includes(inArguments)),
  )
}

/** Kills an initdb, and its children, that still writes into its directory after its daemon was killed. */
export async function endProcessesIn(directory: string): Promise<void> {
  if (process.platform !== 'linux') return
  const inside = () =>
    readdirSync('/proc').filter((name) => {
      if (!/^\d+$/.test(name)) return false
      try {
        return readlinkSync(`/proc/${name}/cwd`).startsWith(directory)
      } catch {
        // It has exited meanwhile, or belongs to another user.
        return false
      }
    })
  await within(5_000, () => {
    const left = inside()
    for (const name of left) signal(Number(name), 'SIGKILL')
    return left.length === 0
  })
}

/**
 * None of its processes is left, so its lock files are stale. The pid in them may now be that of another program or of a
 * zombie, and PostgreSQL would take either for a running server.
 */
export function removeStaleLocks(cluster: Cluster): void {
  for (const file of [join(cluster.data, 'postmaster.pid'), join(cluster.directory, '.s.PGSQL.5432.lock')])
    rmSync(file, { force: true })
}

/** The pid file of the server: its pid and `starting`, `ready` or `stopping`. */
export function readPidFile(cluster: Cluster): { pid: number; status: string } | undefined {
  const lines = readProc(join(cluster.data, 'postmaster.pid'))?.split('\n')
  const pid = Number(lines?.[0])
  return lines && pid > 0 ? { pid, status: lines[7]?.trim() ?? '' } : undefined
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
  // An init that does not reap leaves a zombie, which accepts signals forever.
  return !/^\d+ \(.*\) Z/s.test(readProc(`/proc/${pid}/stat`) ?? '')
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** True as soon as `condition` holds, false at the deadline. */
export async function within(
  milliseconds: number,
  condition: () => boolean | Promise<boolean>,
): Promise<boolean> {
  const deadline = performance.now() + milliseconds
  while (!(await condition())) {
    if (performance.now() > deadline) return false
    await pause(10)
  }
  return true
}

/** Fast shutdown (rolls back open transactions), then immediate (recovery at the next start), then SIGKILL. */
export async function shutDown(cluster: Cluster, pid: number): Promise<'fast' | 'immediate' | 'killed'> {
  const gone = () => !isAlive(pid)
  signal(pid, 'SIGINT')
  if (await within(10_000, gone)) return 'fast'
  signal(pid, 'SIGQUIT')
  if (await within(5_000, gone)) return 'immediate'
  await endLeftovers(cluster, 0)
  return 'killed'
}

/**
 * Children exit soon after their postmaster; until the last one has, a new server would share the data directory with them.
 */
export async function endLeftovers(cluster: Cluster, patience_ms: number): Promise<boolean> {
  const none = async () => (await processesOf(cluster)).length === 0
  if (await within(patience_ms, none)) return true
  for (const { pid } of await processesOf(cluster)) signal(pid, 'SIGKILL')
  return await within(5_000, none)
}
