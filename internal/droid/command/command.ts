// Runs one command with all processes it starts: streams, deadline, end. The deadline is enforced here in the container and
// does not depend on the server. The caller handles the output.

import { randomUUID } from 'node:crypto'
import { closeSync, mkdirSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { Fault } from '../../fault.ts'
import { endProcesses, signalProcesses } from '../../lib/process/processes.ts'
import type { ExecRequest } from '../../protocol/messages.ts'
import { type PipeMaker, spawnPiped } from '../process/pipes.ts'
import { drained, type OutputReader } from './output-reader.ts'

type CommandRequest = Omit<ExecRequest, 'output_bytes'>
export type CommandPlace = {
  env: Record<string, string>
  default_dir: string
  scratch_dir: string
  pipes: PipeMaker
}
export type CommandEnd = {
  exit_code: number
  signal: NodeJS.Signals | null
  timed_out: boolean
  /** Why it failed to start, worded as a shell does; empty if it started. */
  failure: string
}
export type RunningCommand = {
  /** Settles after the exit and the last output. */
  ended: Promise<CommandEnd>
  /** Settles when all its processes are gone. */
  kill(): Promise<void>
  signal(name: NodeJS.Signals): void
}

const quietMs = 100
const killAttempts = 30

/** Throws `invalid` for errors that can be found before the start. */
export function checkCommand({ command, working_dir }: CommandRequest, default_dir: string): string {
  if (command[0] === undefined) throw new Fault('invalid', 'the command is empty')
  const cwd = working_dir ?? default_dir
  if (!statSync(cwd, { throwIfNoEntry: false })?.isDirectory())
    throw new Fault('invalid', `working_dir ${cwd} is not a directory in the container`)
  return cwd
}

/** The file descriptor for stdin: an unlinked file, which unlike a socket can be reopened as /dev/stdin. */
function inputFrom(text: string | undefined, scratch_dir: string): number | 'ignore' {
  if (text === undefined || text === '') return 'ignore'
  mkdirSync(scratch_dir, { recursive: true, mode: 0o700 })
  const file = join(scratch_dir, `stdin-${randomUUID()}`)
  writeFileSync(file, text, { mode: 0o600 })
  const fd = openSync(file, 'r')
  rmSync(file)
  return fd
}

function reading(stream: Readable, on_data: (chunk: Buffer) => void): OutputReader {
  const seen = { ended: false, active_ms: performance.now() }
  const end = new Promise<void>((resolve) => {
    const finish = () => {
      seen.ended = true
      resolve()
    }
    for (const sign of ['end', 'close', 'error']) stream.on(sign, finish)
  })
  stream.on('data', (chunk: Buffer) => {
    seen.active_ms = performance.now()
    on_data(chunk)
  })
  return Object.assign(seen, { end })
}

/** Undefined if `still` returned false just before the start. `id` marks the command's processes. */
export async function launch(
  id: string,
  request: CommandRequest,
  place: CommandPlace,
  on_data: (stream: 'stdout' | 'stderr', chunk: Buffer) => void,
  still: () => boolean,
): Promise<RunningCommand | undefined> {
  const cwd = checkCommand(request, place.default_dir)
  const [program] = request.command
  const input = inputFrom(request.stdin, place.scratch_dir)
  const spawned = await spawnPiped(place.pipes, request.command, {
    cwd,
    env: { ...place.env, ...request.env, OUBLIETTE_EXEC_ID: id },
    stdin: input,
    still,
  }).finally(() => {
    if (typeof input === 'number') closeSync(input)
  })
  if (!spawned) return undefined
  const { child } = spawned
  const mark = `OUBLIETTE_EXEC_ID=${id}`
  const readings = (['stdout', 'stderr'] as const).map((stream) =>
    reading(spawned[stream], (chunk) => on_data(stream, chunk)),
  )
  let timed_out = false

  async function kill(): Promise<void> {
    // A tree that forks faster than it is killed takes several attempts; the container's CPU limit bounds it.
    for (let attempt = 0; attempt < killAttempts; attempt++)
      if (await endProcesses(mark, child.pid, 0)) return
  }
  const timer = setTimeout(() => {
    timed_out = true
    void kill()
  }, request.timeout_seconds * 1000)

  async function finish(): Promise<CommandEnd> {
    const exit = await new Promise<Omit<CommandEnd, 'timed_out'>>((resolve) => {
      child.once('error', (error: NodeJS.ErrnoException) => {
        const missing = error.code === 'ENOENT'
        const failure = `${program}: ${missing ? 'command not found' : error.message}\n`
        resolve({ exit_code: missing ? 127 : 126, signal: null, failure })
      })
      child.once('exit', (code, signal) =>
        resolve({ exit_code: code ?? 128 + (signal ? constants.signals[signal] : 0), signal, failure: '' }),
      )
    })
    await drained(readings, quietMs)
    clearTimeout(timer)
    return { ...exit, timed_out }
  }
  return { ended: finish(), kill, signal: (name) => signalProcesses(mark, child.pid, name) }
}
