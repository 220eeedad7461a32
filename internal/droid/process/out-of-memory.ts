// Detects whether the kernel killed a process of this container for lack of memory, from the counter of its control group.
import { readFileSync } from 'node:fs'

const counters = ['/sys/fs/cgroup/memory.events', '/sys/fs/cgroup/memory/memory.oom_control']
const limits = ['/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes']
const mebibyte = 1024 * 1024
/** One shortage may kill several processes, which are noticed one after the other. */
const sameEventMs = 5_000

/** The first file that exists: cgroup version 2, then version 1. */
function read(paths: string[]): string {
  for (const path of paths)
    try {
      return readFileSync(path, 'utf8')
    } catch {
      // The other cgroup version, or not accessible.
    }
  return ''
}

const kills = (): number => Number(/^oom_kill (\d+)$/m.exec(read(counters))?.[1] ?? 0)

let counted = kills()
let noticed_ms = Number.NEGATIVE_INFINITY

/**
 * Reads the counter regularly, so that an old out-of-memory kill does not explain a later, unrelated exit. A killed process
 * may be noticed a moment after the counter changed.
 */
export function noteOutOfMemory(): void {
  const now = kills()
  if (now > counted) noticed_ms = performance.now()
  counted = now
}

/** The reason for a killed process; undefined if it was not killed for lack of memory. */
export function outOfMemory(): string | undefined {
  noteOutOfMemory()
  if (performance.now() - noticed_ms > sameEventMs) return undefined
  const limit = Number(read(limits))
  return Number.isFinite(limit) && limit > 0 && limit < 2 ** 50
    ? `out of memory (limit ${Math.round(limit / mebibyte)} MiB)`
    : 'out of memory'
}
