// What the supervisor's parts share: where things are, and what each droid is given besides its own.
import { existsSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { createPipeMaker, type PipeMaker } from '../../internal/droid/process/pipes.ts'
import type { Log } from '../../internal/log.ts'
import { places } from '../../internal/protocol/wire.ts'
import { emptyDirectory, ownDirectory } from './supervise/own-directory.ts'
import { createFirstAlone, type FirstAlone } from './supervise/session/first-alone.ts'
import { createUplinkShare, type UplinkShare } from './supervise/session/uplink-share.ts'

export type Environment = {
  socket: string
  /** Kept over restarts of the container. */
  state_dir: string
  journal_dir: string
  scratch_dir: string
  /** How to start this program again, as a droid's MCP server. */
  client: { command: string; args: string[] }
  /** On the loopback: the MCP server that all sessions share. */
  mcp_port: number
  /** Of every child, before what its session adds. */
  env: Record<string, string>
  pipes: PipeMaker
  share: UplinkShare
  first_alone: FirstAlone
  journal_limit_bytes: number
  /** Where droids find their models: the provider's name comes next. */
  models_url: string
  /** The remote of the project, if git reaches it through the server. */
  remote_url?: string
  log: Log
  proof(): string
}

export const socketOf = (env: NodeJS.ProcessEnv): string =>
  env.OUBLIETTE_SOCKET || join(places.directory, places.socket)

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
  // Whatever used it is gone: this process is the first of its container.
  emptyDirectory(scratch_dir)
  const own = process.argv[1]!
  // It stands beside the bundle, and joins a droid with the server that all sessions share.
  const launcher = join(dirname(own), 'oubliette-client')
  // What is ours stays ours: of all that begins with our name a droid gets the socket, its project and its own key.
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
    pipes: createPipeMaker(scratch_dir, (error) => log.warn('mkfifo does not work here', { error })),
    share: createUplinkShare(),
    first_alone: createFirstAlone(),
    journal_limit_bytes: Number(env.OUBLIETTE_JOURNAL_BYTES) || 64 * 1024 * 1024,
    models_url,
    ...(env.OUBLIETTE_REMOTE_URL ? { remote_url: env.OUBLIETTE_REMOTE_URL } : {}),
    log,
    proof: () => readFileSync(join(dirname(socket), places.proof), 'utf8').trim(),
  }
}
