// The engine reports on pulls, builds and imports in JSON lines, and a failure is one of them: the HTTP status was
// sent long before.
import type { Readable } from 'node:stream'
import { Fault } from '../../fault.ts'
import type { BuildProgress } from '../runtime.ts'

type Report = { stream?: string; status?: string; id?: string; error?: string; progress?: string }

/** Ends when the engine is done; what it reports as an error is thrown. `heard` is told of every sign of life. */
export async function followReports(
  stream: NodeJS.ReadableStream,
  what: string,
  progress: BuildProgress,
  heard: () => void = () => undefined,
): Promise<void> {
  let rest = ''
  let words = ''
  for await (const chunk of stream as Readable) {
    heard()
    const lines = (rest + String(chunk)).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim()) words = report(JSON.parse(line) as Report, words)
  }
  if (rest.trim()) report(JSON.parse(rest) as Report, words)

  /** A build's output comes in pieces that are not lines. */
  function report(event: Report, before: string): string {
    if (event.error) throw new Fault('unavailable', `${what} failed: ${event.error}`)
    // A bar per layer and second helps nobody who reads lines.
    if (event.status && !event.progress) progress(event.id ? `${event.id}: ${event.status}` : event.status)
    const pieces = (before + (event.stream ?? '')).split(/[\r\n]+/)
    const open = pieces.pop() ?? ''
    for (const piece of pieces) if (piece.trim()) progress(piece)
    return open
  }
}
