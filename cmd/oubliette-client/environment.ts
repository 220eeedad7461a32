// What the parts of the supervisor share: paths, listeners, and the environment that every droid inherits.
import { chmodSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { createPipeMaker, type PipeMaker } from '../../internal/droid/process/pipes.ts'
import type { Log } from '../../internal/log.ts'
import { places } from '../../internal/protocol/wire.ts'
import { createFirstAlone, type FirstAlone } from './supervise/session/first-alone.ts'
import { createUplinkShare, type UplinkShare } from './supervise/session/uplink-share.ts'

export type Environment = {
  socket: string
  /** Survives restarts of the container. */
  state_dir: string
  journal_dir: string
  scratch_dir: string
  /** How to start this program again, as a droid's MCP server. */
  client: { command: string; args: string[] }
  /** On loopback: the MCP server that all sessions share. */
  mcp_port: number
  /** Environment of every child process, before the variables of its session. */
  env: Record<string, string>
  pipes: PipeMaker
  share: UplinkShare
  first_alone: FirstAlone
  journal_limit_bytes: number
  /** Base URL of the model proxy; the provider's name is appended. */
  models_url: string
  /** The remote of the project, if git reaches it through the server. */
  remote_url?: string
  log: Log
  proof(): string
}

export const socketOf = (env: NodeJS.ProcessEnv): string =>
  env.OUBLIETTE_SOCKET || join(places.directory, places.socket)

// The supervisor's directories are in the droid's home, and a droid may replace, delete or lock them. The container has to
// start anyway: otherwise it could not be repaired from inside.

/** Creates a usable directory at this path. A link, file or pipe at the path is removed. */
function ownDirectory(path: string): void {
  const stats = lstatSync(path, { throwIfNoEntry: false })
  if (stats && !stats.isDirectory()) rmSync(path)
  mkdirSync(path, { recursive: true, mode: 0o700 })
  if (stats?.isDirectory() && (stats.mode & 0o700) !== 0o700) chmodSync(path, (stats.mode & 0o7777) | 0o700)
}

/** Creates an empty directory at this path. Content that cannot be removed is moved aside. */
function emptyDirectory(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch {
    renameSync(path, `${path}.${Date.now()}`)
  }
  ownDirectory(path)
}

type Listening = { models_url: string; mcp_port: number }

export function readEnvironment(
  env: NodeJS.ProcessEnv,
  log: Log,
  { models_url, mcp_port }: Listening,
): Environment {
  const socket = socketOf(env)
  const state_dir = env.OUBLIETTE_STATE_DIR || join(homedir(), '.oubliette')
  const journal_dir = join(state_dir, 'journal')
  const scratch_dir = join(state_dir, 'scratch')
  for (const directory of [dirname(state_dir), state_dir, journal_dir]) ownDirectory(directory)
  // No process uses it any more: this is the first process of the container.
  emptyDirectory(scratch_dir)
  const own = process.argv[1]!
  // The launcher is beside the bundle and connects a droid to the MCP server that all sessions share.
  const launcher = join(dirname(own), 'oubliette-client')
  // Of the variables that begin with OUBLIETTE_, a droid gets only the socket, its project and its own key.
  const inherited = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !entry[0].startsWith('OUBLIETTE_'),
  )
  return {
    socket,
    state_dir,
    journal_dir,
    scratch_dir,
    client: existsSync(launcher)
      ? { command: launcher, args: ['mcp'] }
      : { command: process.execPath, args: [own, 'mcp'] },
    mcp_port,
    env: {
      ...Object.fromEntries(inherited),
      OUBLIETTE_SOCKET: socket,
      ...(env.OUBLIETTE_PROJECT_ID ? { OUBLIETTE_PROJECT_ID: env.OUBLIETTE_PROJECT_ID } : {}),
      PATH: `${env.PATH ?? '/usr/local/bin:/usr/bin:/bin'}:${dirname(own)}`,
    },
    pipes: createPipeMaker(scratch_dir, (error) =>
      log.warn('failed to create named pipes with mkfifo', { error }),
    ),
    share: createUplinkShare(),
    first_alone: createFirstAlone(),
    journal_limit_bytes: Number(env.OUBLIETTE_JOURNAL_BYTES) || 64 * 1024 * 1024,
    models_url,
    ...(env.OUBLIETTE_REMOTE_URL ? { remote_url: env.OUBLIETTE_REMOTE_URL } : {}),
    log,
    proof: () => readFileSync(join(dirname(socket), places.proof), 'utf8').trim(),
  }
}
