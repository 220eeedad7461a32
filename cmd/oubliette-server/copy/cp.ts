// `./oubliette cp SRC DST`: copies files between this machine and a workspace, with the rules of `docker cp`. What comes from a
// container is not trusted: nothing is written outside of the destination, and a link that leads out of the copied files is
// left out.
import { lstat, realpath, stat } from 'node:fs/promises'
import { basename, posix } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { Fault } from '../../../internal/fault.ts'
import { callTool, type Endpoint, endpoint } from '../client/call.ts'
import { resolveProject } from '../client/project.ts'
import { type Command, options, place, Usage } from '../command.ts'
import { baseUrl } from '../daemon/daemon.ts'
import { createProgress } from '../setup/progress.ts'
import { isContents, parseReference, type Remote, splitPath } from './reference.ts'
import { archiveUrl, download, type Skipped, upload } from './transfer.ts'

type Copied = { files: number; bytes: number; skipped: Skipped }
type Kind = 'file' | 'directory' | 'symlink' | 'other' | 'missing'
type At = { project_id: string; workspace: string; path: string }

const shownMs = 200

const readable = (bytes: number): string => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  const power = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  const value = bytes / 1000 ** power
  return `${power === 0 ? value : value.toFixed(1)} ${units[power]}`
}

const missing = (path: string) => new Fault('not_found', `no such file or directory: ${path}`)
const notDirectory = (path: string) =>
  new Fault('invalid', `${path} is a file, and the source is a directory`)

/** A line on the terminal, while bytes pass. */
function createMeter() {
  const progress = createProgress()
  let bytes = 0
  let shown = performance.now()
  return {
    async *count(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      for await (const chunk of source) {
        bytes += chunk.length
        if (performance.now() - shown > shownMs) {
          shown = performance.now()
          progress.detail(`${readable(bytes)} copied`)
        }
        yield chunk
      }
    },
    end: () => process.stderr.isTTY && progress.end(),
  }
}
type Meter = ReturnType<typeof createMeter>

async function remoteKind(where: Endpoint, { project_id, workspace, path }: At): Promise<Kind> {
  const info = await callTool(where, 'workspace', {
    action: 'path_info',
    project_id,
    workspace_id: workspace,
    path,
  })
  return info.exists ? (info.type as Kind) : 'missing'
}

async function localKind(path: string): Promise<Kind> {
  const stats = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw new Fault('invalid', `cannot read ${path}: ${error.message}`)
  })
  if (!stats) return 'missing'
  return stats.isDirectory() ? 'directory' : stats.isFile() ? 'file' : 'other'
}

/** Where the top of the tree goes: into `directory`, under `name`; without a name, its contents. */
type Target = { directory: string; name?: string }

/** `kind` of what is at the destination now. */
function targetOf(
  destination: string,
  kind: Kind,
  source: { name: string; is_directory: boolean; contents: boolean },
): Target {
  if (kind === 'directory')
    return source.contents ? { directory: destination } : { directory: destination, name: source.name }
  if (kind !== 'missing' && source.is_directory) throw notDirectory(destination)
  if (kind === 'missing' && destination.endsWith('/') && !source.is_directory) throw missing(destination)
  const { parent, name } = splitPath(destination)
  return { directory: parent, name }
}

/** A link may lead only to what was copied with it. */
function staysInside(components: string[], target: string, top: string | undefined): boolean {
  if (target.startsWith('/')) return false
  const [first] = posix.join(...components.slice(0, -1), target).split('/')
  return top === undefined ? first !== '..' : first === top && components.length > 1
}

async function copyFrom(where: Endpoint, from: At, to: string, meter: Meter): Promise<Copied> {
  const kind = await remoteKind(where, from)
  if (kind === 'missing') throw missing(from.path)
  const contents = isContents(from.path)
  if (contents && kind !== 'directory') throw new Fault('invalid', `${from.path} is not a directory`)
  const source = { name: splitPath(from.path).name, is_directory: kind === 'directory', contents }
  const target = targetOf(to, await localKind(to), source)
  const directory = await realpath(target.directory).catch(() => {
    throw missing(target.directory)
  })
  const { openDirectory } = await import('../../../internal/files/handles.ts')
  const { extractTree } = await import('../../../internal/files/archive/extract.ts')
  const base = await openDirectory(directory)
  try {
    const { archive, skipped } = await download(where, archiveUrl(where, from))
    const result = await extractTree(meter.count(archive), base, {
      place: ([, ...rest]) => (target.name === undefined ? rest : [target.name, ...rest]),
      check(components, { type, linkname }) {
        if (type === 'symlink' && !staysInside(components, linkname ?? '', target.name))
          throw new Fault('invalid', `is a link that leads out of the copied files (to "${linkname}")`)
      },
    })
    return { ...result, skipped: together(skipped(), result.skipped) }
  } finally {
    await base.close()
  }
}

async function copyTo(where: Endpoint, from: string, to: At, meter: Meter): Promise<Copied> {
  const contents = isContents(from)
  const path = contents ? await realpath(from).catch(() => from) : from.replace(/(.)\/+$/, '$1')
  const stats = await lstat(path).catch(() => {
    throw missing(from)
  })
  if (contents && !stats.isDirectory()) throw new Fault('invalid', `${from} is not a directory`)
  const source = { name: basename(await realpath(path)), is_directory: stats.isDirectory(), contents }
  const kind = isContents(to.path) ? 'directory' : await remoteKind(where, to)
  const target = targetOf(to.path, kind, source)
  const { packTree } = await import('../../../internal/files/archive/pack.ts')
  const { stream, packed } = packTree({ path, stats }, target.name ?? '.', { one_file_system: false })
  const url = archiveUrl(where, { ...to, path: target.directory })
  const { files, bytes, skipped } = await upload(where, url, meter.count(stream))
  return { files, bytes, skipped: together(packed().skipped, skipped) }
}

const together = (one: Skipped, other: Skipped): Skipped => ({
  count: one.count + other.count,
  entries: [...one.entries, ...other.entries],
})

function report({ files, bytes, skipped }: Copied, quiet: boolean): number {
  if (!quiet)
    process.stderr.write(`oubliette: copied ${files} file${files === 1 ? '' : 's'} (${readable(bytes)})\n`)
  if (skipped.count === 0) return 0
  process.stderr.write(`oubliette: ${skipped.count} entries were not copied:\n`)
  // A name can contain what a terminal would interpret.
  for (const { path, reason } of skipped.entries)
    process.stderr.write(`  ${JSON.stringify(path)}: ${reason}\n`)
  if (skipped.count > skipped.entries.length)
    process.stderr.write(`  and ${skipped.count - skipped.entries.length} more\n`)
  return 1
}

async function run(args: string[]): Promise<number> {
  const { values, positionals } = options(
    args,
    { quiet: { type: 'boolean', short: 'q', default: false } },
    true,
  )
  const [first, second] = positionals
  if (first === undefined || second === undefined || positionals.length > 2)
    throw new Usage('expected SRC and DST', 'example: ./oubliette cp site:report.pdf .')
  const [from, to] = [parseReference(first), parseReference(second)]
  if ((from.kind === 'remote') === (to.kind === 'remote'))
    throw new Usage('one of SRC and DST must be PROJECT:PATH, and the other a local path or -')
  const config = place()
  const where = endpoint(config, baseUrl(config))
  const at = async ({ project, workspace, path }: Remote): Promise<At> => ({
    project_id: await resolveProject(where, project),
    workspace,
    path,
  })
  const meter = createMeter()
  const finish = (copied: Copied, quiet = values.quiet) => {
    // The line of the meter is cleared before another is written.
    meter.end()
    return report(copied, quiet)
  }
  try {
    if (from.kind === 'remote') {
      const source = await at(from)
      if (to.kind === 'local') return finish(await copyFrom(where, source, to.path, meter))
      if (process.stdout.isTTY)
        throw new Usage('refusing to write an archive to a terminal', 'redirect the output')
      const { archive, skipped } = await download(where, archiveUrl(where, source))
      await pipeline(archive, process.stdout)
      return finish({ files: 0, bytes: 0, skipped: skipped() }, true)
    }
    const target = await at(to as Remote)
    if (from.kind === 'local') return finish(await copyTo(where, from.path, target, meter))
    const stdin = process.stdin as AsyncIterable<Buffer>
    return finish(await upload(where, archiveUrl(where, target), meter.count(stdin)))
  } finally {
    meter.end()
  }
}

export const cp: Command = {
  about: 'Copy files between this machine and a workspace of a project',
  usage: '[OPTIONS] SRC DST',
  details: `SRC or DST is PROJECT:PATH or PROJECT/WORKSPACE:PATH, and the other one is a local path. With - instead of the local path, a
tar archive is written to standard output or read from standard input. A directory is copied with everything in it; SRC/.
copies what is in it. If DST is a directory, SRC is copied into it; if DST does not exist, it is the new name. Symbolic links
are copied as links. Pipes, sockets, devices and hard links in archives are not copied: then the exit code is 1.`,
  options: [['-q, --quiet', 'Do not print what was copied']],
  examples: [
    './oubliette cp site:report.pdf .',
    './oubliette cp ./src site/review:src',
    './oubliette cp site:. - | tar -t',
  ],
  run,
}
