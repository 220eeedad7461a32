// Builds a base image locally, for machines without access to a registry: from the distribution's packages on the mirror that the
// machine is configured for, streamed as a tar archive into the engine.
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { Fault } from '../../fault.ts'
import { isRoot } from '../../lib/is-root.ts'
import { findProgram, runCommand, startCommand } from '../command.ts'
import {
  type AptSource,
  distributionSources,
  formatAptSource,
  parseAptSources,
  parseOsRelease,
  type SourceFile,
} from './apt-sources.ts'
import type { LineProgress } from './progress.ts'

type Options = { progress: LineProgress; signal: AbortSignal }
export type Rootfs = {
  codename: string
  tar(options: Options, take: (tar: Readable) => Promise<void>): Promise<void>
}

const excluded = ['/usr/share/man/*', '/usr/share/info/*', '/usr/share/doc/*', '/usr/share/locale/*']
const kept = ['/usr/share/doc/*/copyright']

async function sourceFiles(): Promise<SourceFile[]> {
  const directory = '/etc/apt/sources.list.d'
  const read = async (path: string) => ({ path, text: await readFile(path, 'utf8') })
  const absent = (error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  }
  const single = await read('/etc/apt/sources.list').then((file) => [file], absent)
  const names = await readdir(directory).catch(absent)
  const wanted = names.filter((name) => name.endsWith('.list') || name.endsWith('.sources')).sort()
  return [...single, ...(await Promise.all(wanted.map((name) => read(join(directory, name)))))]
}

/** Undefined if the machine is not of the Debian family or has no mirror. */
export async function findRootfs(): Promise<Rootfs | undefined> {
  const release = parseOsRelease(await readFile('/etc/os-release', 'utf8').catch(() => ''))
  const sources = release ? distributionSources(parseAptSources(await sourceFiles()), release) : []
  if (!release || sources.length === 0) return undefined
  return {
    codename: release.codename,
    async tar(options, take) {
      const program = await findOrInstall('mmdebstrap', options)
      if (program) return await byMmdebstrap(program, sources, options, take)
      const older = await findOrInstall('debootstrap', options)
      if (older) return await byDebootstrap(older, sources, options, take)
      throw new Fault(
        'unavailable',
        'cannot get a base image: no registry answers and mmdebstrap is not installed',
        {
          hint: 'install mmdebstrap with apt-get, or load debian:bookworm-slim with docker load',
        },
      )
    },
  }
}

async function findOrInstall(name: string, { progress, signal }: Options): Promise<string | undefined> {
  const found = await findProgram(name)
  if (found) return found
  const apt = await findProgram('apt-get')
  if (!apt || !isRoot()) return undefined
  const options = { progress, signal, env: { DEBIAN_FRONTEND: 'noninteractive' } }
  const install = ['-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=120', 'install', name]
  progress(`installing ${name}`)
  try {
    await runCommand(apt, install, options)
  } catch {
    // A new machine has no package lists, and a broken list of another vendor must not prevent the installation.
    progress('updating package lists')
    await runCommand(apt, ['update'], options).catch((error: unknown) => progress(String(error)))
    await runCommand(apt, install, options).catch((error: unknown) => progress(String(error)))
  }
  return await findProgram(name)
}

/** Taken from the program's output as it is made; both have to end well. */
async function byMmdebstrap(
  program: string,
  sources: AptSource[],
  { progress, signal }: Options,
  take: (tar: Readable) => Promise<void>,
): Promise<void> {
  const args = [
    '--variant=minbase',
    '--format=tar',
    '--skip=output/dev',
    ...excluded.map((path) => `--dpkgopt=path-exclude=${path}`),
    ...kept.map((path) => `--dpkgopt=path-include=${path}`),
    ...(await aptProxies()).map((option) => `--aptopt=${option}`),
    sources[0]!.suite,
    '-',
    ...sources.map(formatAptSource),
  ]
  progress(`building a base image from ${sources[0]!.uri} (${sources[0]!.suite})`)
  const { stdout, done } = startCommand(program, args, { progress, signal })
  await Promise.all([done, take(stdout)])
}

async function byDebootstrap(
  program: string,
  sources: AptSource[],
  { progress, signal }: Options,
  take: (tar: Readable) => Promise<void>,
): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'oubliette-rootfs-'))
  try {
    const [main] = sources
    progress(`building a base image from ${main!.uri} (${main!.suite})`)
    const keyring = main!.signed_by ? [`--keyring=${main!.signed_by}`] : []
    const made = startCommand(program, ['--variant=minbase', ...keyring, main!.suite, directory, main!.uri], {
      progress,
      signal,
    })
    // Unlike its successor it reports on stdout.
    made.stdout.setEncoding('utf8').on('data', (text: string) => {
      for (const line of text.split('\n')) if (line.trim()) progress(line)
    })
    await made.done
    await writeFile(join(directory, 'etc/apt/sources.list'), `${sources.map(formatAptSource).join('\n')}\n`)
    const { stdout, done } = startCommand(
      'tar',
      [
        '-C',
        directory,
        '--one-file-system',
        '--exclude=./dev/*',
        '--exclude=./var/cache/apt/archives/*.deb',
        '-c',
        '.',
      ],
      { signal },
    )
    await Promise.all([done, take(stdout)])
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/** A proxy that only apt knows of; one in the environment reaches the program by itself. */
async function aptProxies(): Promise<string[]> {
  const program = await findProgram('apt-config')
  if (!program) return []
  const dump = await runCommand(program, ['dump', 'Acquire::http::Proxy', 'Acquire::https::Proxy'])
  return dump.split('\n').filter((line) => /^Acquire::https?::Proxy "[^"]+";$/.test(line))
}
