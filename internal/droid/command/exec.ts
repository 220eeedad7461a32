// Runs one command to its end for a waiting caller. Output beyond the limit is read and discarded, so that the command never
// blocks on a full pipe. On timeout and on cancellation, which includes a lost connection, the whole process tree is killed.
import { randomUUID } from 'node:crypto'
import { StringDecoder } from 'node:string_decoder'
import { createBoundedOutput } from '../../lib/bounded-output.ts'
import type { ExecRequest } from '../../protocol/messages.ts'
import { type CommandPlace, launch } from './command.ts'

export type ExecResult = {
  exit_code: number
  stdout: string
  stderr: string
  truncated: boolean
  timed_out: boolean
  duration_ms: number
}

const firstMs = 1000
const everyMs = 500
const pieceChars = 8 * 1024

/**
 * Output of a running command, reported in pieces of limited size and rate. What does not fit is left out and counted; the
 * result has all of it.
 */
export function createLiveOutput(report: (text: string) => void) {
  const decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') }
  const began = performance.now()
  let pending = ''
  let left_out = 0
  let timer: NodeJS.Timeout | undefined

  const flush = () => {
    timer = undefined
    const note = left_out > 0 ? `\n[${left_out} characters left out]\n` : ''
    const text = pending.toWellFormed() + note
    pending = ''
    left_out = 0
    if (text !== '') report(text)
  }

  return {
    push(stream: 'stdout' | 'stderr', chunk: Buffer): void {
      if (pending.length >= pieceChars) left_out += chunk.length
      else {
        const text = decoders[stream].write(chunk)
        const room = pieceChars - pending.length
        pending += text.slice(0, room)
        left_out += Math.max(0, text.length - room)
      }
      timer ??= setTimeout(flush, Math.max(everyMs, firstMs - (performance.now() - began))).unref()
    },
    stop: () => clearTimeout(timer),
  }
}

export async function exec(
  request: ExecRequest,
  place: CommandPlace & {
    signal: AbortSignal
    /** Gets the output of a command that runs longer than a moment; bounded in rate and size. */
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
