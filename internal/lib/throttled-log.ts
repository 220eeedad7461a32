// Rate-limits warnings that a container can cause at will: each is logged once per interval, with the number of suppressed ones,
// so that a container cannot fill the disk with the server's log.
import { LRUCache } from 'lru-cache'
import type { Fields, Log } from '../log.ts'

const intervalMs = 10_000
const maxKeys = 10_000

/** `of` identifies who caused the warning: the warnings of one source do not suppress those of another. */
export type ThrottledWarn = (of: string, message: string, fields: Fields) => void

export function createThrottledWarn(
  log: Pick<Log, 'warn'>,
  now: () => number = () => performance.now(),
): ThrottledWarn {
  const logged = new LRUCache<string, { at: number; left_out: number }>({ max: maxKeys })
  return (of, message, fields) => {
    const key = `${of} ${message}`
    const before = logged.get(key)
    if (before && now() - before.at < intervalMs) {
      before.left_out += 1
      return
    }
    logged.set(key, { at: now(), left_out: 0 })
    log.warn(message, before?.left_out ? { ...fields, left_out: before.left_out } : fields)
  }
}
