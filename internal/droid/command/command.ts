// One command as a process with all that it starts: its streams, its deadline, its end. The deadline is kept here, in the
// container, and needs no server. What becomes of the output is up to whoever launched it.
import { randomUUID } from 'node:crypto'
import { closeSync, mkdirSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { Fault } from '../../fault.ts'
import { type PipeMaker, spawnPiped } from '../process/pipes.ts'
import { endProcesses, signalProcesses } from '../process/processes.ts'
import { drained, type OutputReader } from './output-reader.ts'

export type CommandRequest = {
  command: string[]
  working_dir?: string
  env?: Record<string, string>
  stdin?: string
  timeout_seconds: number
}
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
  /** Why it could not be started, in the words of a shell; empty if it was. */
  failure: string
}
export type RunningCommand = {
  /** After its exit and the last of its output. */
  ended: Promise<CommandEnd>
  /** Settles when nothing of it is left. */
  kill(): Promise<void>
  signal(name: NodeJS.Signals): void
}

const quietMs = 100
const killAttempts = 30

/** Throws `invalid` for what can be known without starting anything. */
export function checkCommand({ command, working_dir }: CommandRequest, default_dir: string): string {
  if (command[0] === undefined) throw new Fault('invalid', 'the command is empty')
  const cwd = working_dir ?? default_dir
  if (!statSync(cwd, { throwIfNoEntry: false })?.isDirectory())
    throw new Fault('invalid', `working_dir ${cwd} is not a directory in the container`)
  return cwd
}

/** Where the input is read from: a file without a name, which unlike a socket can be opened again as /dev/stdin. */
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

/** Undefined if `still` said no at the last moment. `id` is the mark by which its processes are found. */
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
    // A tree that forks faster than it is cut takes more than one attempt; the processor limit of the container bounds it.
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
