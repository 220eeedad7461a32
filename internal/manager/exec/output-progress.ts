// What a container tells as the progress of a command. It is not trusted: neither its shape, nor how much it tells, nor how
// often.
import type { Progress } from '../container/containers.ts'

const mostCharacters = 16 * 1024
/** Of one call: a client that reads nothing must not have us keep a day's output for it. */
const mostInAll = 4 * 1024 * 1024
const least_ms = 200

export function createOutputProgress(tell: Progress): (update: { message?: unknown }) => void {
  let last = Number.NEGATIVE_INFINITY
  let told = 0
  return ({ message }) => {
    if (typeof message !== 'string' || message === '' || told > mostInAll) return
    const now = performance.now()
    if (now - last < least_ms) return
    last = now
    const text = message.slice(0, mostCharacters).toWellFormed()
    told += text.length
    tell(told > mostInAll ? `${text}\n[further output is not shown while the command runs]\n` : text)
  }
}
