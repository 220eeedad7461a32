// One command in a running container through the engine: its two streams, its exit code, its end in time.
import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type Docker from 'dockerode'
import { createCapped } from '../capped.ts'
import { Fault } from '../fault.ts'
import type { Log } from '../log.ts'
import { createDemux } from './demux.ts'
import { isStatus, reasonOf, statusOf } from './errors.ts'
import { killMarked, mark } from './kill.ts'
import type { Names } from './names.ts'
import type { ExecRequest, Runtime } from './runtime.ts'

type Ending = 'ended' | 'timed_out' | 'cancelled'

const launch_ms = 30_000
const drain_ms = 2_000
const killed_exit_code = 137

export function createExec(docker: Docker, names: Names, log: Log): Runtime['exec'] {
  return async (project_id, request) => {
    const started = performance.now()
    checkRequest(request)
    request.signal?.throwIfAborted()
    const container = docker.getContainer(names.of(project_id))
    const token = randomBytes(12).toString('hex')
    const { exec, stream } = await launch(container, request, token)
    const stdout = createCapped(request.output_bytes)
    const stderr = createCapped(request.output_bytes)
    const demux = createDemux()
    stream.on('data', (chunk: Buffer) => {
      for (const frame of demux(chunk)) (frame.stream === 'stdout' ? stdout : stderr).push(frame.data)
    })
    const closed = closing(stream)
    if (request.stdin !== undefined) feed(stream, request.stdin, exec)

    const ending = await firstOf(closed, request)
    if (ending !== 'ended') {
      await killTree(container, token, project_id, log)
      await Promise.race([closed, sleep(drain_ms)])
      stream.destroy()
    }
    if (ending === 'cancelled') throw cancelled(request.signal?.reason)
    const exit_code = await exitCode(exec, ending)
    const launched = ending === 'ended' ? refusal(exit_code, stdout.text(), stderr.text()) : undefined
    if (launched?.fault) throw launched.fault
    return {
      exit_code: launched?.exit_code ?? exit_code,
      stdout: launched ? '' : stdout.text(),
      stderr: launched ? launched.text : stderr.text(),
      truncated: stdout.truncated || stderr.truncated,
      timed_out: ending === 'timed_out',
      duration_ms: Math.round(performance.now() - started),
    }
  }
}

function checkRequest({ command, env = {} }: ExecRequest): void {
  if (!command[0]) throw new Fault('invalid', 'the command is empty')
  const bad = Object.keys(env).find((name) => name === '' || name.includes('='))
  if (bad !== undefined) throw new Fault('invalid', `"${bad}" cannot be the name of an environment variable`)
}

async function launch(container: Docker.Container, request: ExecRequest, token: string) {
  const limits = [AbortSignal.timeout(launch_ms), ...(request.signal ? [request.signal] : [])]
  try {
    const exec = await container.exec({
      Cmd: request.command,
      // Never in the command line: the engine's events show that to everybody.
      Env: Object.entries({ ...request.env, [mark]: token }).map(([name, value]) => `${name}=${value}`),
      AttachStdout: true,
      AttachStderr: true,
      AttachStdin: request.stdin !== undefined,
      ...(request.working_dir ? { WorkingDir: request.working_dir } : {}),
      abortSignal: AbortSignal.any(limits),
    })
    // No signal for this one: it would cut the connection of a command that runs.
    const stream = await inTime(exec.start({ hijack: true, stdin: request.stdin !== undefined }))
    return { exec, stream }
  } catch (error) {
    if (isStatus(error, 404, 409))
      throw new Fault('conflict', 'the container is not running', {
        hint: 'start it first (container start)',
        cause: error,
      })
    // Newer engines refuse here what older ones write into the output.
    const said = statusOf(error) === undefined ? undefined : refusalFault(reasonOf(error))
    throw said ?? error
  }
}

async function inTime(start: Promise<Duplex>): Promise<Duplex> {
  const over = new AbortController()
  const late = sleep(launch_ms, undefined, { signal: over.signal }).then(() => {
    start.then((stream) => stream.destroy()).catch(() => undefined)
    throw new Fault('timeout', `the engine did not start the command within ${launch_ms / 1000} s`)
  })
  try {
    return await Promise.race([start, late])
  } finally {
    late.catch(() => undefined)
    over.abort()
  }
}

const closing = (stream: Duplex): Promise<void> =>
  new Promise((resolve) => {
    stream.once('close', () => resolve())
    // A connection that breaks shows in the exit code, which is then not to be had.
    stream.on('error', () => stream.destroy())
  })

/** The engine does not close a connection into which we are still writing, even when nobody reads any more. */
function feed(stream: Duplex, stdin: string, exec: Docker.Exec): void {
  let flushed = false
  stream.end(stdin, () => {
    flushed = true
  })
  const watch = async () => {
    while (!flushed && !stream.destroyed) {
      await sleep(200)
      if (flushed || stream.destroyed || (await exec.inspect()).Running) continue
      await sleep(200)
      stream.destroy()
    }
  }
  watch().catch(() => stream.destroy())
}

async function firstOf(closed: Promise<void>, { timeout_seconds, signal }: ExecRequest): Promise<Ending> {
  const over = new AbortController()
  const cancel = Promise.withResolvers<Ending>()
  const onAbort = () => cancel.resolve('cancelled')
  signal?.addEventListener('abort', onAbort, { once: true })
  if (signal?.aborted) onAbort()
  try {
    return await Promise.race([
      closed.then((): Ending => 'ended'),
      sleep<Ending>(timeout_seconds * 1000, 'timed_out', { signal: over.signal }),
      cancel.promise,
    ])
  } finally {
    signal?.removeEventListener('abort', onAbort)
    over.abort()
  }
}

async function killTree(
  container: Docker.Container,
  token: string,
  project_id: string,
  log: Log,
): Promise<void> {
  try {
    if (await killMarked(container, token)) return
    log.warn('a command could not be killed, its container is', { project_id })
    await container.kill()
  } catch (error) {
    // It is not running any more: then nothing in it is.
    if (!isStatus(error, 404, 409)) throw error
  }
}

async function exitCode(exec: Docker.Exec, ending: Ending): Promise<number> {
  for (let attempt = 0; attempt < 20; attempt++) {
    const { Running, ExitCode } = await exec.inspect().catch((error: unknown) => {
      if (isStatus(error, 404)) return { Running: true, ExitCode: null }
      throw error
    })
    if (!Running && ExitCode !== null) return ExitCode
    if (ending === 'timed_out') return killed_exit_code
    await sleep(100)
  }
  throw new Fault('unavailable', 'the engine has lost the command', {
    hint: 'was the engine restarted? try again',
  })
}

function cancelled(reason: unknown): Fault {
  if (reason instanceof Fault) return reason
  return new Fault('timeout', 'the command was given up; it and what it started were killed', {
    cause: reason,
  })
}

type Refusal = { exit_code: number; text: string; fault?: Fault }

/** The engine says why a command did not start in the command's own output. */
export function refusal(exit_code: number, stdout: string, stderr: string): Refusal | undefined {
  if ((exit_code !== 126 && exit_code !== 127) || stderr !== '') return undefined
  if (!stdout.startsWith('OCI runtime exec failed')) return undefined
  const text = stdout.replace(/^OCI runtime exec failed: exec failed: /, '').trim()
  const fault = refusalFault(text)
  if (fault) return { exit_code, text, fault }
  const missing = /executable file not found|no such file or directory/.test(text)
  return { exit_code: missing ? 127 : 126, text: `${text}\n` }
}

function refusalFault(text: string): Fault | undefined {
  const about = /chdir to cwd|Cwd must be|working directory/i.test(text)
    ? 'working_dir'
    : /can't contain null|invalid environment variable/i.test(text)
      ? 'env'
      : undefined
  return about && new Fault('invalid', `${about}: ${text}`)
}
