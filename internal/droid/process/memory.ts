// Measures the memory of each session's processes from /proc. Only private memory counts: pages of programs and libraries are
// shared and can be read again from disk, so they do not cause an out-of-memory kill.
import { readdirSync, readFileSync } from 'node:fs'

const pageBytes = 4096
const mark = '\0OUBLIETTE_SESSION_ID='

type Process = { pid: number; ppid: number; bytes: number; session_id: string | undefined }

function readProcess(pid: number): Process | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses may itself contain anything.
    const ppid = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
    const [, resident = 0, shared = 0] = readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ').map(Number)
    return { pid, ppid, bytes: Math.max(0, resident - shared) * pageBytes, session_id: sessionOf(pid) }
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

export function memoryBySession(): Map<string, number> {
  const all = new Map<number, Process>()
  for (const name of readdirSync('/proc')) {
    const seen = /^\d+$/.test(name) ? readProcess(Number(name)) : undefined
    if (seen) all.set(seen.pid, seen)
  }
  const bytes = new Map<string, number>()
  for (const process of all.values()) {
    let owner: Process | undefined = process
    // Pids may be reused during the scan, so the chain of parents is followed for a limited length.
    for (let step = 0; owner && owner.session_id === undefined && step < 64; step++)
      owner = all.get(owner.ppid)
    const session_id = owner?.session_id
    if (session_id) bytes.set(session_id, (bytes.get(session_id) ?? 0) + process.bytes)
  }
  return bytes
}
