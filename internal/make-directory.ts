import { mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/** With its parents, one at a time: with `recursive`, Node never returns from a directory below /proc. */
export function makeDirectory(path: string, mode = 0o777): void {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent, mode)
  try {
    mkdirSync(path, { mode })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    if (!statSync(path).isDirectory()) throw new Error(`${path} is not a directory`)
  }
}
