// Whether the kernel ended a process of this container for lack of memory, by the counter of its control group.
import { readFileSync } from 'node:fs'

const counters = ['/sys/fs/cgroup/memory.events', '/sys/fs/cgroup/memory/memory.oom_control']
const limits = ['/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes']
const mebibyte = 1024 * 1024
/** One lack of memory may end several processes, which are noticed one after the other. */
const togetherMs = 5_000

/** Of the first that is there: control groups of version 2, or of version 1. */
function read(paths: string[]): string {
  for (const path of paths)
    try {
      return readFileSync(path, 'utf8')
    } catch {
      // The other version, or a system that hides them.
    }
  return ''
}

const kills = (): number => Number(/^oom_kill (\d+)$/m.exec(read(counters))?.[1] ?? 0)

let counted = kills()
let noticed_ms = Number.NEGATIVE_INFINITY

/**
 * Looks at the counter, so that a lack of memory which ended no droid explains nothing that happens long after it. A
 * process that it did end may be noticed a moment later.
 */
export function noteOutOfMemory(): void {
  const now = kills()
  if (now > counted) noticed_ms = performance.now()
  counted = now
}

/** What to say of a process that was killed; undefined if it was not for lack of memory. */
export function outOfMemory(): string | undefined {
  noteOutOfMemory()
  if (performance.now() - noticed_ms > togetherMs) return undefined
  const limit = Number(read(limits))
  return Number.isFinite(limit) && limit > 0 && limit < 2 ** 50
    ? `out of memory (limit ${Math.round(limit / mebibyte)} MiB)`
    : 'out of memory'
}
