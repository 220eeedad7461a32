// The engine reports pulls, builds and imports as JSON lines. A failure is one of these lines, because the HTTP status was sent
// before.
import type { Readable } from 'node:stream'
import { Fault } from '../../fault.ts'
import type { BuildProgress } from '../runtime.ts'

type Report = { stream?: string; status?: string; id?: string; error?: string; progress?: string }

/** Settles at the end of the stream and throws a reported error. `onReport` is called for every chunk. */
export async function followReports(
  stream: NodeJS.ReadableStream,
  what: string,
  progress: BuildProgress,
  onReport: () => void = () => undefined,
): Promise<void> {
  let rest = ''
  let words = ''
  for await (const chunk of stream as Readable) {
    onReport()
    const lines = (rest + String(chunk)).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim()) words = report(JSON.parse(line) as Report, words)
  }
  if (rest.trim()) report(JSON.parse(rest) as Report, words)

  /** The output of a build arrives in pieces that are not lines. */
  function report(event: Report, before: string): string {
    if (event.error) throw new Fault('unavailable', `${what} failed: ${event.error}`)
    // Progress bars are not useful as lines.
    if (event.status && !event.progress) progress(event.id ? `${event.id}: ${event.status}` : event.status)
    const pieces = (before + (event.stream ?? '')).split(/[\r\n]+/)
    const open = pieces.pop() ?? ''
    for (const piece of pieces) if (piece.trim()) progress(piece)
    return open
  }
}
