// Programs as processes of this host, for entries that the config file allows. Each has a process group and a mark of its own, by
// which everything that it started is found. A watchdog in its group kills the group when this process dies, however it dies;
// what left the group is killed at the next start, by the records in a directory.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough, type Writable } from 'node:stream'
import { Fault, messageOf } from '../fault.ts'
import { lockLimit } from '../lib/process/lock-limit.ts'
import { endProcesses } from '../lib/process/processes.ts'
import type { Log } from '../log.ts'
import type { RuntimeProcess } from './runtime.ts'

export type HostProcessSpec = {
  command: string[]
  /** All of it: nothing of this process' own environment is added but PATH. */
  env: Record<string, string>
  working_dir?: string
}

export interface HostProcesses {
  open(spec: HostProcessSpec, signal: AbortSignal): Promise<RuntimeProcess>
  /** Kills what an earlier process left behind; returns how many programs. */
  sweep(): Promise<number>
}

/** With a socket as stdin, bash takes itself for the shell of a remote login, and would run the start-up files of the user. */
const plain = ['--norc', '--noprofile', '-p']
const markName = 'OUBLIETTE_UPSTREAM_PROCESS'
const graceMs = 500
/** Descriptor of the pipe whose end tells that this process is gone. */
const lifeline = 3
/**
 * The subshell waits for the end of the pipe and kills the group; the program replaces the shell, whose id is the id of the group.
 * The limit is the mark that survives a cleared environment.
 */
const script = `ulimit -x "$1" 2>/dev/null; shift
( trap '' TERM INT HUP; read -r _ <&${lifeline}; kill -KILL -$$ ) </dev/null >/dev/null 2>&1 &
exec ${lifeline}<&-
exec "$@"`

type Left = { pid: number; mark: string }

export function createHostProcesses(directory: string, log: Log): HostProcesses {
  const live = new Set<string>()
  const fileOf = (mark: string) => join(directory, `${mark.slice(mark.indexOf('=') + 1)}.json`)

  async function open(
    { command, env, working_dir }: HostProcessSpec,
    signal: AbortSignal,
  ): Promise<RuntimeProcess> {
    signal.throwIfAborted()
    const mark = `${markName}=${randomBytes(16).toString('hex')}`
    live.add(mark)
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const child = spawn('bash', [...plain, '-c', script, 'oubliette', String(lockLimit(mark)), ...command], {
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
      env: { PATH: process.env.PATH ?? '', ...env, [markName]: mark.slice(markName.length + 1) },
      ...(working_dir === undefined ? {} : { cwd: working_dir }),
    })
    // Before anything else is waited for: it may end at once.
    const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
    exited.catch(() => undefined)
    const stdin = child.stdin as Writable
    // Read from the start: Node discards what a program that has ended leaves in a stream without a reader.
    const stdout = new PassThrough()
    const stderr = new PassThrough()
    child.stdout?.pipe(stdout)
    child.stderr?.pipe(stderr)
    try {
      await once(child, 'spawn')
      const pid = child.pid!
      await writeFile(fileOf(mark), JSON.stringify({ pid, mark } satisfies Left), { mode: 0o600 })
      child.stdio[lifeline]?.on('error', () => undefined)
      const end = async (grace_ms: number) => {
        if (!(await endProcesses(mark, pid, grace_ms)))
          log.warn('failed to end all processes of an upstream, retrying at the next start', { pid })
        else await rm(fileOf(mark), { force: true })
        live.delete(mark)
      }
      const ended = exited.then(async ([exit_code, by]) => {
        // What it started ends with it.
        await end(0)
        const reason = by ? `it was killed by ${by}` : reasonOfExit(exit_code, command)
        return { exit_code, reason }
      })
      let killing: Promise<void> | undefined
      return {
        stdin,
        stdout,
        stderr,
        ended,
        kill() {
          killing ??= (async () => {
            await endProcesses(mark, pid, graceMs)
            await ended
          })()
          return killing
        },
      }
    } catch (error) {
      live.delete(mark)
      throw new Fault('unavailable', `failed to start ${command[0]}: ${messageOf(error)}`, { cause: error })
    }
  }

  async function sweep(): Promise<number> {
    let ended = 0
    for (const name of await readdir(directory).catch(() => [] as string[])) {
      const file = join(directory, name)
      try {
        const { mark } = JSON.parse(await readFile(file, 'utf8')) as Left
        if (live.has(mark)) continue
        // By the mark alone: the process id may belong to another program now.
        if (await endProcesses(mark, undefined, 0)) {
          await rm(file, { force: true })
          ended++
        }
      } catch (error) {
        log.warn('failed to end the processes of an upstream', { file: name, error: messageOf(error) })
      }
    }
    return ended
  }

  return { open, sweep }
}

function reasonOfExit(exit_code: number | null, [program]: string[]): string {
  if (exit_code === 127) return `the program ${program} was not found (exit code 127)`
  if (exit_code === 126) return `the program ${program} cannot be run (exit code 126)`
  return `it ended with exit code ${exit_code}`
}
