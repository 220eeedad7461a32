import { mkdirSync } from 'node:fs'

/** A droid may delete its home, and our directory in it. It is made anew then; to look each time would cost every event. */
export function inDirectory<T>(directory: string, write: () => T): T {
  try {
    return write()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    return write()
  }
}
