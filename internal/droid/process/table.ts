// The processes of a container from /proc, and which session each belongs to: the nearest ancestor that has the session in its
// environment. Only private memory counts: pages of programs and libraries are shared and can be read again from disk, so
// they do not cause an out-of-memory kill.
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

const pageBytes = 4096
const ticksPerSecond = 100
const mark = '\0OUBLIETTE_SESSION_ID='

type Process = {
  pid: number
  ppid: number
  bytes: number
  cpu_seconds: number
  /** Identifies the process together with its pid. */
  started: string
  name: string
  session_id: string | undefined
}

function readProcess(pid: number): Process | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses may itself contain anything.
    const end = stat.lastIndexOf(')')
    const fields = stat.slice(end + 2).split(' ')
    const [, resident = 0, shared = 0] = readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ').map(Number)
    return {
      pid,
      ppid: Number(fields[1]),
      bytes: Math.max(0, resident - shared) * pageBytes,
      cpu_seconds: (Number(fields[11]) + Number(fields[12])) / ticksPerSecond,
      started: fields[19] ?? '',
      name: stat.slice(stat.indexOf('(') + 1, end),
      session_id: sessionOf(pid),
    }
  } catch {
    // The process has just ended.
    return undefined
  }
}

function sessionOf(pid: number): string | undefined {
  try {
    const environ = `\0${readFileSync(`/proc/${pid}/environ`, 'latin1')}`
    const at = environ.indexOf(mark)
    if (at < 0) return undefined
    const from = at + mark.length
    return environ.slice(from, environ.indexOf('\0', from))
  } catch {
    // A process that cannot be read counts with its parent.
    return undefined
  }
}

/** With the session that each belongs to. */
function readAll(): Process[] {
  const all = new Map<number, Process>()
  for (const name of readdirSync('/proc')) {
    const seen = /^\d+$/.test(name) ? readProcess(Number(name)) : undefined
    if (seen) all.set(seen.pid, seen)
  }
  return [...all.values()].map((process) => {
    let owner: Process | undefined = process
    // Pids may be reused during the scan, so the chain of parents is followed for a limited length.
    for (let step = 0; owner && owner.session_id === undefined && step < 64; step++)
      owner = all.get(owner.ppid)
    return { ...process, session_id: owner?.session_id }
  })
}

export function memoryBySession(): Map<string, number> {
  const bytes = new Map<string, number>()
  for (const process of readAll())
    if (process.session_id)
      bytes.set(process.session_id, (bytes.get(process.session_id) ?? 0) + process.bytes)
  return bytes
}

/** Over which the use of the processor is measured. */
const sampleMs = 200
const mostProcesses = 200
const mostCharacters = 200

/** The command line, or the name of a process that has none. */
function commandOf({ pid, name }: Process): string {
  const clip = (text: string) => text.slice(0, mostCharacters).toWellFormed()
  try {
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
    return clip(line || name)
  } catch {
    return clip(name)
  }
}

/** The processes of one session, those with the most memory first if there are too many to list. */
export async function processesOf(session_id: string) {
  const cpuOf = new Map(readAll().map(({ pid, started, cpu_seconds }) => [`${pid} ${started}`, cpu_seconds]))
  const began = performance.now()
  await pause(sampleMs)
  const seconds = (performance.now() - began) / 1000
  const own = readAll().filter((process) => process.session_id === session_id)
  const listed = own.toSorted((a, b) => b.bytes - a.bytes).slice(0, mostProcesses)
  return {
    total: own.length,
    processes: listed
      .toSorted((a, b) => a.pid - b.pid)
      .map((process) => {
        const { pid, ppid, started, cpu_seconds, bytes } = process
        const used = cpu_seconds - (cpuOf.get(`${pid} ${started}`) ?? 0)
        return {
          pid,
          ppid,
          command: commandOf(process),
          cpu_seconds,
          cpu_percent: Math.max(0, Math.round((used / seconds) * 100)),
          memory_bytes: bytes,
        }
      }),
  }
}
