// What `cp` copies from and to: a local path, `PROJECT[/WORKSPACE]:PATH`, or `-` for a tar archive on standard input or output.
import { Usage } from '../command.ts'

export type Remote = { kind: 'remote'; project: string; workspace: string; path: string }
export type Reference = Remote | { kind: 'local'; path: string } | { kind: 'stream' }

/** As of `docker cp`: a path that begins with `/` or `.` is local, whatever it contains. */
export function parseReference(word: string): Reference {
  if (word === '') throw new Usage('a path is empty')
  if (word === '-') return { kind: 'stream' }
  const colon = word.indexOf(':')
  if (colon < 0 || word.startsWith('/') || word.startsWith('.')) return { kind: 'local', path: word }
  const [project = '', workspace = 'default', ...more] = word.slice(0, colon).split('/')
  if (project === '' || workspace === '' || more.length > 0)
    throw new Usage(`"${word}" is not PROJECT:PATH or PROJECT/WORKSPACE:PATH`)
  return { kind: 'remote', project, workspace, path: word.slice(colon + 1) || '.' }
}

/** `DIRECTORY/.` means what is in the directory, without the directory. */
export const isContents = (path: string): boolean => path === '.' || path.endsWith('/.')

/** The directory and the last component of a path that need not exist. */
export function splitPath(path: string): { parent: string; name: string } {
  const trimmed = path.replace(/\/+$/, '')
  const at = trimmed.lastIndexOf('/')
  return { parent: at < 0 ? '.' : trimmed.slice(0, at) || '/', name: trimmed.slice(at + 1) }
}
