// The engine reports pulls, builds and imports as JSON lines. A failure is one of these lines, because the HTTP status was sent
// before; it is thrown with the last lines of the output.
import type { Readable } from 'node:stream'
import { stripVTControlCharacters } from 'node:util'
import { Fault } from '../../fault.ts'
import { stepOf } from './steps.ts'

type Report = { stream?: string; status?: string; id?: string; error?: string; progress?: string }
export type LineProgress = (line: string) => void

const lastLines = 10
const lineCharacters = 140
const errorCharacters = 300
/** What the builder says about its own containers and layers. */
const isBuilderNote = (line: string) => /^ ?---> |^Removing intermediate container /.test(line)

const clipped = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text)

/** Settles at the end of the stream and throws a reported error. `onReport` is called for every chunk. */
export async function followReports(
  stream: NodeJS.ReadableStream,
  what: string,
  progress: LineProgress,
  onReport: () => void = () => undefined,
): Promise<void> {
  let rest = ''
  let words = ''
  const last: string[] = []
  for await (const chunk of stream as Readable) {
    onReport()
    const lines = (rest + String(chunk)).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line.trim()) words = report(JSON.parse(line) as Report, words)
  }
  if (rest.trim()) report(JSON.parse(rest) as Report, words)

  function output(text: string): void {
    const line = stripVTControlCharacters(text).trimEnd()
    if (line.trim() === '') return
    // A failure is one of the step that runs.
    if (stepOf(line)) last.length = 0
    if (!isBuilderNote(line)) last.push(clipped(line, lineCharacters))
    if (last.length > lastLines) last.shift()
    progress(line)
  }

  function failure(error: string, open: string): Fault {
    if (open.trim()) output(open)
    const tail = last.length > 0 ? `; its last output:\n${last.join('\n')}` : ''
    return new Fault('unavailable', `${what} failed: ${clipped(error.trim(), errorCharacters)}${tail}`)
  }

  /** The output of a build arrives in pieces that are not lines. */
  function report(event: Report, before: string): string {
    if (event.error) throw failure(event.error, before)
    // Progress bars are not useful as lines.
    if (event.status && !event.progress) progress(event.id ? `${event.id}: ${event.status}` : event.status)
    const pieces = (before + (event.stream ?? '')).split(/[\r\n]+/)
    const open = pieces.pop() ?? ''
    for (const piece of pieces) output(piece)
    return open
  }
}
