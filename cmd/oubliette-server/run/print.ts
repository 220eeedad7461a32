// Prints the events of a session: the output of the droid to stdout as it arrives, everything else as short lines to stderr,
// so that `./oubliette run … | other` passes on the answer only.
import { stripVTControlCharacters } from 'node:util'
import type { RunEvent } from './events.ts'

type Out = { write(text: string): unknown; isTTY?: boolean }

const line = (value: unknown, most = 160): string => {
  const text = stripVTControlCharacters(typeof value === 'string' ? value : JSON.stringify(value ?? ''))
    .replaceAll(/\s+/g, ' ')
    .trim()
  return text.length > most ? `${text.slice(0, most - 1)}…` : text
}

/** The line for an event that is not output of the droid; undefined for events that are not shown. */
export function noteOf(event: RunEvent): string | undefined {
  switch (event.type) {
    case 'tool_call':
      return event.partial
        ? undefined
        : `▸ ${line(event.title ?? event.kind)} ${line(event.input ?? '', 80)}`.trimEnd()
    case 'tool_result':
      return event.status === 'failed' ? `✗ ${line(event.output ?? event.title ?? 'tool failed')}` : undefined
    case 'plan':
      return (Array.isArray(event.entries) ? event.entries : [])
        .map(
          (entry: { content?: unknown; status?: unknown }) =>
            `${entry.status === 'completed' ? '☑' : '☐'} ${line(entry.content)}`,
        )
        .join('\n')
    case 'permission_request':
      return `? ${line((event.tool_call as { title?: unknown } | undefined)?.title)}: waiting for approval (./oubliette approval list --session-id ${event.session_id})`
    case 'tool_approval_request':
      return `? ${line(event.server)}: ${line(event.tool)}: waiting for approval (./oubliette approval get ${line(event.approval_id)})`
    case 'caller_tool_request':
      return `? ${line(event.tool)}: waiting for the caller`
    case 'error':
      return `✗ ${line(event.message, 500)}`
    case 'status':
      if (event.status === 'queued')
        return `… queued at position ${line(event.queue_position)}: ${line(event.reason)}`
      return event.status === 'failed' ? `✗ failed: ${line(event.reason, 500)}` : undefined
    case 'completion':
      return typeof event.error === 'string' && event.exit_code === undefined
        ? `✗ ${line(event.error, 500)}`
        : undefined
    default:
      return undefined
  }
}

export function createPrinter({ json, out, err }: { json: boolean; out: Out; err: Out }) {
  let open = false
  const dim = (text: string) => (err.isTTY ? `\x1b[2m${text}\x1b[22m` : text)
  const breakLine = () => {
    if (open) out.write('\n')
    open = false
  }

  return {
    show(event: RunEvent): void {
      if (json) return void out.write(`${JSON.stringify(event)}\n`)
      const text = typeof event.text === 'string' ? event.text : ''
      if (event.type === 'delta' && event.stream === 'stderr') return void err.write(text)
      if (event.type === 'delta') {
        out.write(text)
        // The output of a script is passed on unchanged; the text of an agent gets a final newline if it has none.
        open = event.stream === undefined && !text.endsWith('\n')
        return
      }
      if (event.type === 'thought') return void err.write(dim(text))
      const note = noteOf(event)
      if (!note) return
      breakLine()
      err.write(`${dim(note)}\n`)
    },
    end: breakLine,
  }
}
