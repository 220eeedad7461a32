// What the supervisor's parts share: where things are, and what each droid is given besides its own.
import { mkdirSync, readFileSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { createPipeMaker, type PipeMaker } from '../../internal/droid/pipes.ts'
import type { Log } from '../../internal/log.ts'
import { places } from '../../internal/relay/wire.ts'

export type Around = {
  socket: string
  journal_dir: string
  scratch_dir: string
  /** How to start this program again, as a droid's MCP server. */
  client: { command: string; args: string[] }
  /** Of every child, before what its session adds. */
  env: Record<string, string>
  pipes: PipeMaker
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

export function lookAround(env: NodeJS.ProcessEnv, log: Log, models_url: string): Around {
  const socket = socketOf(env)
  const state_dir = env.OUBLIETTE_STATE_DIR || join(homedir(), '.oubliette')
  const journal_dir = join(state_dir, 'journal')
  const scratch_dir = join(state_dir, 'scratch')
  // Whatever used it is gone: this process is the first of its container.
  rmSync(scratch_dir, { recursive: true, force: true })
  for (const directory of [journal_dir, scratch_dir]) mkdirSync(directory, { recursive: true, mode: 0o700 })
  const own = process.argv[1]!
  // What is ours stays ours: of all that begins with our name a droid gets the socket, its project and its own key.
  const inherited = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !entry[0].startsWith('OUBLIETTE_'),
  )
  return {
    socket,
    journal_dir,
    scratch_dir,
    client: { command: process.execPath, args: [own, 'mcp'] },
    env: {
      ...Object.fromEntries(inherited),
      OUBLIETTE_SOCKET: socket,
      ...(env.OUBLIETTE_PROJECT_ID ? { OUBLIETTE_PROJECT_ID: env.OUBLIETTE_PROJECT_ID } : {}),
      PATH: `${env.PATH ?? '/usr/local/bin:/usr/bin:/bin'}:${dirname(own)}`,
    },
    pipes: createPipeMaker(scratch_dir, (error) => log.warn('mkfifo does not work here', { error })),
    journal_limit_bytes: Number(env.OUBLIETTE_JOURNAL_BYTES) || 64 * 1024 * 1024,
    models_url,
    ...(env.OUBLIETTE_REMOTE_URL ? { remote_url: env.OUBLIETTE_REMOTE_URL } : {}),
    log,
    proof: () => readFileSync(join(dirname(socket), places.proof), 'utf8').trim(),
  }
}
