// The server's processes as the system shows them. A pid in a file may by now be anybody's, so a process counts as
// ours only when its command line carries the cluster's name, which the server puts into those of all its processes.
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { Cluster } from './cluster.ts'

type Process = { pid: number; command: string }

/** Undefined for what is gone in the meantime; a zombie has an empty command line. */
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

/** Everything of this cluster that runs: the postmaster and, also when it died without them, its children. */
export async function processesOf(cluster: Cluster): Promise<Process[]> {
  const inArguments = ` cluster_name=${cluster.name}`
  return (await processes()).filter(
    ({ command }) =>
      command.startsWith(`postgres: ${cluster.name}: `) ||
      (command.split(' ')[0]!.endsWith('/postgres') && command.includes(inArguments)),
  )
}

/** Ends an initdb, and what it started, whose server was killed and which still writes into its directory. */
export async function endProcessesIn(directory: string): Promise<void> {
  if (process.platform !== 'linux') return
  const inside = () =>
    readdirSync('/proc').filter((name) => {
      if (!/^\d+$/.test(name)) return false
      try {
        return readlinkSync(`/proc/${name}/cwd`).startsWith(directory)
      } catch {
        // Gone in the meantime, or of another user and so not ours.
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
 * None of its processes is left, so its lock files are stale whatever pid is in them: by now it may be the pid of
 * another program, or of a zombie, and PostgreSQL takes both for a server that runs.
 */
export function removeStaleLocks(cluster: Cluster): void {
  for (const file of [join(cluster.data, 'postmaster.pid'), join(cluster.directory, '.s.PGSQL.5432.lock')])
    rmSync(file, { force: true })
}

/** What the server says of itself: its pid and `starting`, `ready` or `stopping`. */
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
  // An init that does not reap leaves a zombie, which answers signals for ever.
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

/** Fast (open transactions are rolled back), then immediate (recovery at the next start), then by force. */
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
 * Children end by themselves soon after their postmaster died; until the last has, a new server would share the data
 * with them.
 */
export async function endLeftovers(cluster: Cluster, patience_ms: number): Promise<boolean> {
  const none = async () => (await processesOf(cluster)).length === 0
  if (await within(patience_ms, none)) return true
  for (const { pid } of await processesOf(cluster)) signal(pid, 'SIGKILL')
  return await within(5_000, none)
}
