// Finds and ends all processes of a droid or of an upstream, including those that left its process group. They are identified in four ways: by
// process group, by descent, by an inherited environment variable (for processes that called setsid and whose parent is gone),
// and by a resource limit (for processes that cleared their environment). Only a process that deliberately drops all four
// escapes, until its container ends.
import { readdirSync, readFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { limitsCarry } from './lock-limit.ts'

const nice = 10

/**
 * Lowers a droid's priority below the supervisor's, so that output is read and commands are answered while droids are busy. It
 * affects one container only; the container's share of the machine does not change.
 */
export function lowerPriority({ pid }: { pid?: number | undefined }): void {
  if (pid === undefined) return
  try {
    setPriority(pid, nice)
  } catch {
    // The process has ended, or the system does not allow it; the droid runs anyway.
  }
}

type Seen = { pid: number; ppid: number; pgid: number; zombie: boolean; marked: boolean }

function readProcess(pid: number, mark: string): Seen | undefined {
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
      // A process of another user, or one that is ending.
    }
    return { pid, ppid: Number(ppid), pgid: Number(pgid), zombie: state === 'Z' || state === 'X', marked }
  } catch {
    return undefined
  }
}

/** Live processes of the group or with the mark (`NAME=value`), and all their descendants. */
export function belonging(mark: string, pgid?: number): number[] {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name), mark))
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

/** Sends one signal to all processes of the group or with the mark. */
export function signalProcesses(mark: string, pgid: number | undefined, signal: NodeJS.Signals): void {
  const found = belonging(mark, pgid)
  signalAll(found, signal)
  // A stopped process does not handle signals.
  signalAll(found, 'SIGCONT')
}

/** Sends a signal, waits for the grace period, then sends SIGKILL until nothing is left: a fork may race with the scan. */
export async function endProcesses(
  mark: string,
  pgid: number | undefined,
  grace_ms: number,
  first_signal: NodeJS.Signals = 'SIGTERM',
): Promise<boolean> {
  const first = belonging(mark, pgid)
  if (first.length === 0) return true
  if (grace_ms > 0) {
    signalAll(first, first_signal)
    // A stopped process does not handle signals.
    signalAll(first, 'SIGCONT')
    if (await untilGone(mark, pgid, Date.now() + grace_ms)) return true
  }
  for (let round = 0; round < 40; round++) {
    signalAll(belonging(mark, pgid), 'SIGKILL')
    if (await untilGone(mark, pgid, Date.now() + 20)) return true
  }
  return false
}
