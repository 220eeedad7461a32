// The supervisor's directories lie in the droid's home, and a droid may replace, delete or lock them. A container must come up
// all the same: otherwise nobody could get in to repair it.
import { chmodSync, lstatSync, mkdirSync, renameSync, rmSync } from 'node:fs'

/** A directory that we can use, at this place. A link, a file or a pipe that stands there is removed. */
export function ownDirectory(path: string): void {
  const stats = lstatSync(path, { throwIfNoEntry: false })
  if (stats && !stats.isDirectory()) rmSync(path)
  mkdirSync(path, { recursive: true, mode: 0o700 })
  if (stats?.isDirectory() && (stats.mode & 0o700) !== 0o700) chmodSync(path, (stats.mode & 0o7777) | 0o700)
}

/** The same, with nothing in it. What cannot be removed is moved aside. */
export function emptyDirectory(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch {
    renameSync(path, `${path}.${Date.now()}`)
  }
  ownDirectory(path)
}
