// One command, run to its end with limits on time and output; what is beyond the limit is read and thrown away, so that
// the command never blocks on us. On time-out and on cancellation its whole tree is killed.
import { randomUUID } from 'node:crypto'
import { closeSync, mkdirSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { createCapped } from '../capped.ts'
import { Fault } from '../fault.ts'
import { type PipeMaker, spawnPiped } from './pipes.ts'
import { endProcesses } from './processes.ts'
import { drained } from './reading.ts'

export type ExecRequest = {
  command: string[]
  working_dir?: string
  env?: Record<string, string>
  stdin?: string
  timeout_seconds: number
  output_bytes: number
}
export type ExecResult = {
  exit_code: number
  stdout: string
  stderr: string
  truncated: boolean
  timed_out: boolean
  duration_ms: number
}

const QUIET_MS = 100

function collect(stream: Readable, limit: number) {
  const kept = createCapped(limit)
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
    kept.push(chunk)
  })
  return Object.assign(seen, { end, kept })
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

export async function exec(
  request: ExecRequest,
  around: {
    env: Record<string, string>
    default_dir: string
    scratch_dir: string
    pipes: PipeMaker
    signal: AbortSignal
  },
): Promise<ExecResult> {
  const [program] = request.command
  if (program === undefined) throw new Fault('invalid', 'the command is empty')
  const cwd = request.working_dir ?? around.default_dir
  if (!statSync(cwd, { throwIfNoEntry: false })?.isDirectory())
    throw new Fault('invalid', `working_dir ${cwd} is not a directory in the container`)
  const began = performance.now()
  const exec_id = randomUUID()
  const input = inputFrom(request.stdin, around.scratch_dir)
  const spawned = await spawnPiped(around.pipes, request.command, {
    cwd,
    env: { ...around.env, ...request.env, OUBLIETTE_EXEC_ID: exec_id },
    stdin: input,
    still: () => !around.signal.aborted,
  }).finally(() => {
    if (typeof input === 'number') closeSync(input)
  })
  if (!spawned) throw around.signal.reason
  const { child } = spawned
  const stdout = collect(spawned.stdout, request.output_bytes)
  const stderr = collect(spawned.stderr, request.output_bytes)
  let timed_out = false
  let failure = ''
  const kill = () => endProcesses(`OUBLIETTE_EXEC_ID=${exec_id}`, child.pid, 0)
  const timer = setTimeout(() => {
    timed_out = true
    void kill()
  }, request.timeout_seconds * 1000)
  const onAbort = () => void kill()
  around.signal.addEventListener('abort', onAbort, { once: true })
  try {
    const exit_code = await new Promise<number>((resolve) => {
      child.once('error', (error: NodeJS.ErrnoException) => {
        failure = `${program}: ${error.code === 'ENOENT' ? 'command not found' : error.message}\n`
        resolve(error.code === 'ENOENT' ? 127 : 126)
      })
      child.once('exit', (code, signal) => resolve(code ?? 128 + (signal ? constants.signals[signal] : 0)))
    })
    await drained([stdout, stderr], QUIET_MS)
    around.signal.throwIfAborted()
    return {
      exit_code,
      stdout: stdout.kept.text(),
      stderr: failure + stderr.kept.text(),
      truncated: stdout.kept.truncated || stderr.kept.truncated,
      timed_out,
      duration_ms: Math.round(performance.now() - began),
    }
  } finally {
    clearTimeout(timer)
    around.signal.removeEventListener('abort', onAbort)
  }
}
