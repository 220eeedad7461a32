// The log of a server in the background. Its stderr is the file itself, opened for appending, so that even a crash leaves
// its last words there; the file is kept small by copying it aside and cutting it, which an appending writer does not notice.
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

export function keepSmall(file: string): Disposable {
  const timer = setInterval(() => rotate(file), check_ms).unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}
