// Mounts that ignore set-user-id bits and devices. The engine's bind mounts do not support `nosuid,nodev`, but a bind mount
// inherits the flags of the mount that contains its source. So a server that runs as root on the engine's host mounts the
// directories of containers a second time, with these flags, and containers get them from there. A read-only bind mount of the
// engine would lose the flags, so read-only directories are mounted read-only here. Where this is not possible, containers get
// the directories themselves.
import { mkdir, readFile, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../fault.ts'
import { isRoot } from '../lib/is-root.ts'
import type { Log } from '../log.ts'
import { runCommand } from './command.ts'
import { digest } from './docker/names.ts'
import type { ContainerSpec } from './runtime.ts'

export type Stage = {
  /** The spec with staged directories, or unchanged if there are none. */
  apply(spec: ContainerSpec): ContainerSpec
  /** Checks the mounts and restores missing ones. */
  check(): Promise<void>
  /** Stops staging, because the engine does not see these mounts. */
  disable(reason: string): void
  /** The path behind a staged one. */
  original(path: string): string
  close(): Promise<void>
}

type Directory = { source: string; target: string; read_only: boolean }

export const noStage: Stage = {
  apply: (spec) => spec,
  check: async () => undefined,
  disable: () => undefined,
  original: (path) => path,
  close: async () => undefined,
}

/** Where the directories of a home are mounted. Outside of it, so that nothing which walks the home finds them twice. */
export const stagePath = (home: string): string => `/run/oubliette-${digest(home).slice(0, 12)}`

const within = (path: string, directory: string): boolean =>
  path === directory || path.startsWith(`${directory}/`)

/** The kernel writes spaces and the like as octal numbers. */
const unescaped = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))

/** The flags of the mount at a path, or undefined if there is none. The last one counts: it lies above the others. */
export function mountFlags(mountinfo: string, path: string): string[] | undefined {
  const lines = mountinfo.split('\n').map((line) => line.split(' '))
  return lines.findLast((fields) => unescaped(fields[4] ?? '') === path)?.[5]?.split(',')
}

export async function createStage(options: {
  home: string
  /** Directories of the home that containers get, or get parts of. */
  directories: { name: string; read_only: boolean }[]
  log: Log
}): Promise<Stage> {
  const { home, log } = options
  const root = stagePath(home)
  const directories = options.directories.map(
    ({ name, read_only }): Directory => ({
      source: join(home, name),
      target: join(root, name),
      read_only,
    }),
  )
  const mounted = new Set<string>()
  let usable = false
  let disabled = false
  let checking: Promise<void> | undefined

  const unmount = (path: string) => runCommand('umount', ['-l', path])

  async function isMounted({ source, target, read_only }: Directory): Promise<boolean> {
    const flags = mountFlags(await readFile('/proc/self/mountinfo', 'utf8'), target)
    const wanted = ['nosuid', 'nodev', read_only ? 'ro' : 'rw']
    if (!flags || !wanted.every((flag) => flags.includes(flag))) return false
    const [here, there] = await Promise.all([stat(source), stat(target)])
    return here.ino === there.ino && here.dev === there.dev
  }

  async function mount(directory: Directory): Promise<void> {
    const { source, target, read_only } = directory
    await mkdir(root, { recursive: true, mode: 0o700 })
    await mkdir(source, { recursive: true })
    await mkdir(target, { recursive: true })
    if (await isMounted(directory)) return void mounted.add(target)
    if (mountFlags(await readFile('/proc/self/mountinfo', 'utf8'), target)) await unmount(target)
    await runCommand('mount', ['--bind', source, target])
    mounted.add(target)
    // The first call ignores flags other than `bind`.
    const flags = `remount,bind,nosuid,nodev${read_only ? ',ro' : ''}`
    await runCommand('mount', ['-o', flags, target])
    if (!(await isMounted(directory))) throw new Error(`${target} is mounted without the requested flags`)
  }

  async function mountAll(): Promise<void> {
    try {
      for (const directory of directories)
        if (!usable || !(await isMounted(directory))) await mount(directory)
      usable = true
    } catch (error) {
      disable(messageOf(error))
    }
  }

  /** Concurrent starts share one check: two would mount twice. */
  async function check(): Promise<void> {
    if (disabled) return
    if (!isRoot()) return disable('the server does not run as root')
    checking ??= mountAll().finally(() => {
      checking = undefined
    })
    await checking
  }

  function disable(reason: string): void {
    usable = false
    disabled = true
    log.warn('failed to mount container directories with nosuid,nodev; using plain bind mounts', { reason })
  }

  await check()
  return {
    check,
    disable,
    apply(spec) {
      if (!usable) return spec
      const mounts = spec.mounts.map((one) => {
        const directory = directories.find(({ source }) => within(one.source, source))
        if (!directory || (one.read_only && !directory.read_only)) return one
        const source = directory.target + one.source.slice(directory.source.length)
        return { ...one, source, read_only: false }
      })
      return { ...spec, mounts }
    },
    original(path) {
      const directory = directories.find(({ target }) => within(path, target))
      return directory ? directory.source + path.slice(directory.target.length) : path
    },
    /** Running containers keep what they have: their mounts are their own. */
    async close() {
      usable = false
      if (mounted.size === 0) return
      try {
        for (const target of mounted) await unmount(target)
        for (const { target } of directories) await rmdir(target)
        await rmdir(root)
      } catch (error) {
        // The next start uses or replaces what is left.
        log.warn('failed to unmount container directories', { path: root, reason: messageOf(error) })
      }
    },
  }
}
