// One command, run to its end for somebody who waits; what is beyond the limit is read and thrown away, so that the command
// never blocks on us. On time-out and on cancellation, which a lost connection is as well, its whole tree is killed.
import { randomUUID } from 'node:crypto'
import { createBoundedOutput } from '../../lib/bounded-output.ts'
import { type CommandPlace, type CommandRequest, launch } from './command.ts'
import { createLiveOutput } from './live-output.ts'

export type ExecRequest = CommandRequest & { output_bytes: number }
export type ExecResult = {
  exit_code: number
  stdout: string
  stderr: string
  truncated: boolean
  timed_out: boolean
  duration_ms: number
}

export async function exec(
  request: ExecRequest,
  place: CommandPlace & {
    signal: AbortSignal
    /** Told what it writes, if it takes longer than a moment; bounded in rate and size. */
    on_output?: (text: string) => void
  },
): Promise<ExecResult> {
  const { signal } = place
  const began = performance.now()
  const kept = {
    stdout: createBoundedOutput(request.output_bytes),
    stderr: createBoundedOutput(request.output_bytes),
  }
  const live = place.on_output && createLiveOutput(place.on_output)
  const running = await launch(
    randomUUID(),
    request,
    place,
    (stream, chunk) => {
      kept[stream].push(chunk)
      live?.push(stream, chunk)
    },
    () => !signal.aborted,
  )
  if (!running) throw signal.reason
  const onAbort = () => void running.kill()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    const { exit_code, failure, timed_out } = await running.ended
    signal.throwIfAborted()
    return {
      exit_code,
      stdout: kept.stdout.text(),
      stderr: failure + kept.stderr.text(),
      truncated: kept.stdout.truncated || kept.stderr.truncated,
      timed_out,
      duration_ms: Math.round(performance.now() - began),
    }
  } finally {
    live?.stop()
    signal.removeEventListener('abort', onAbort)
  }
}
