import { mkdirSync } from 'node:fs'

/** Recreates the directory if a droid has deleted it. Checking before each write would cost every event. */
export function inDirectory<T>(directory: string, write: () => T): T {
  try {
    return write()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    return write()
  }
}
