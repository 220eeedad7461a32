// The log file of a background server. The stderr of the server is this file, opened for appending, so that the output of
// a crash is in it as well. Rotation copies the file and truncates it, which works with a writer that appends.
import { copyFileSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'

export const logFile = (home: string) => join(home, 'logs', 'server.log')

const check_ms = 10_000

export function rotate(file: string, max_bytes = 10 * 1024 * 1024): boolean {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0
  if (size <= max_bytes) return false
  copyFileSync(file, `${file}.1`)
  truncateSync(file)
  return true
}

export function rotatePeriodically(file: string): Disposable {
  const timer = setInterval(() => rotate(file), check_ms).unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}
