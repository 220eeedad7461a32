// Process groups and what slips out of them. A droid's processes are known by four marks: its process group, its
// descent, a variable in the environment that children inherit (which still finds those that called setsid and whose
// parent is gone), and a limit (which still finds those that have no environment any more). Only a process that sets out to
// lose all of them escapes, until the container ends.
import { readdirSync, readFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { limitsCarry } from './lock-limit.ts'

const NICE = 10

/**
 * Behind the supervisor: however busy the processes of droids are, what they print is read and commands are answered. It
 * counts within one container only; what a container gets of the machine does not change.
 */
export function lowerPriority({ pid }: { pid?: number | undefined }): void {
  if (pid === undefined) return
  try {
    setPriority(pid, NICE)
  } catch {
    // It has ended already, or the system does not allow it: a droid runs all the same.
  }
}

type Seen = { pid: number; ppid: number; pgid: number; zombie: boolean; marked: boolean }

function look(pid: number, mark: string): Seen | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses may itself contain anything.
    const [state, ppid, pgid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    let marked = false
    try {
      marked =
        `\0${readFileSync(`/proc/${pid}/environ`, 'latin1')}`.includes(`\0${mark}\0`) ||
        limitsCarry(readFileSync(`/proc/${pid}/limits`, 'latin1'), mark)
    } catch {
      // Another user's process, or one that is just going: not ours to mark.
    }
    return { pid, ppid: Number(ppid), pgid: Number(pgid), zombie: state === 'Z' || state === 'X', marked }
  } catch {
    return undefined
  }
}

/** Everything alive that belongs to the group or carries the mark (`NAME=value`), and all that descends from it. */
export function belonging(mark: string, pgid?: number): number[] {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => look(Number(name), mark))
    .filter((seen): seen is Seen => seen !== undefined && seen.pid !== process.pid)
  const found = new Set(all.filter((it) => it.marked || it.pgid === pgid).map((it) => it.pid))
  for (let grown = true; grown; ) {
    grown = false
    for (const it of all) {
      if (found.has(it.pid) || !found.has(it.ppid)) continue
      found.add(it.pid)
      grown = true
    }
  }
  return all.filter((it) => found.has(it.pid) && !it.zombie).map((it) => it.pid)
}

function signalAll(pids: number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
}

async function untilGone(mark: string, pgid: number | undefined, deadline: number): Promise<boolean> {
  for (let pause = 5; ; pause = Math.min(pause * 2, 50)) {
    if (belonging(mark, pgid).length === 0) return true
    if (Date.now() >= deadline) return false
    await delay(pause)
  }
}

/** To everything that belongs to the group or carries the mark, once. */
export function signalProcesses(mark: string, pgid: number | undefined, signal: NodeJS.Signals): void {
  const found = belonging(mark, pgid)
  signalAll(found, signal)
  // A stopped process would sleep through the request.
  signalAll(found, 'SIGCONT')
}

/** Asks, waits for the grace, then kills, again and again until nothing is left: a fork may race with the look. */
export async function endProcesses(
  mark: string,
  pgid: number | undefined,
  grace_ms: number,
): Promise<boolean> {
  const first = belonging(mark, pgid)
  if (first.length === 0) return true
  if (grace_ms > 0) {
    signalAll(first, 'SIGTERM')
    // A stopped process would sleep through the request.
    signalAll(first, 'SIGCONT')
    if (await untilGone(mark, pgid, Date.now() + grace_ms)) return true
  }
  for (let round = 0; round < 40; round++) {
    signalAll(belonging(mark, pgid), 'SIGKILL')
    if (await untilGone(mark, pgid, Date.now() + 20)) return true
  }
  return false
}
