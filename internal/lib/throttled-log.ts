// For warnings that somebody else can cause as often as he likes: each is said once in a while, and then with how many were
// left out since, so that a container cannot fill a disk with the server's log.
import { LRUCache } from 'lru-cache'
import type { Fields, Log } from '../log.ts'

const everyMs = 10_000
const keepAtMost = 10_000

/** `of` is whose warning it is: what one causes does not hide what another does. */
export type ThrottledWarn = (of: string, message: string, fields: Fields) => void

export function createThrottledWarn(
  log: Pick<Log, 'warn'>,
  now: () => number = () => performance.now(),
): ThrottledWarn {
  const said = new LRUCache<string, { at: number; left_out: number }>({ max: keepAtMost })
  return (of, message, fields) => {
    const key = `${of} ${message}`
    const before = said.get(key)
    if (before && now() - before.at < everyMs) {
      before.left_out += 1
      return
    }
    said.set(key, { at: now(), left_out: 0 })
    log.warn(message, before?.left_out ? { ...fields, left_out: before.left_out } : fields)
  }
}
