// A session's events for a terminal: what the droid says on stdout as it says it, everything around it as short lines on
// stderr, so that `./oubliette run … | other` passes on the answer and nothing else.
import { stripVTControlCharacters } from 'node:util'
import type { RunEvent } from './outcome.ts'

type Out = { write(text: string): unknown; isTTY?: boolean }

const line = (value: unknown, most = 160): string => {
  const text = stripVTControlCharacters(typeof value === 'string' ? value : JSON.stringify(value ?? ''))
    .replaceAll(/\s+/g, ' ')
    .trim()
  return text.length > most ? `${text.slice(0, most - 1)}…` : text
}

/** The short line about an event that is not the droid's own words; undefined if there is nothing to say. */
export function noteOf(event: RunEvent): string | undefined {
  switch (event.type) {
    case 'tool_call':
      return event.partial
        ? undefined
        : `▸ ${line(event.title ?? event.kind)} ${line(event.input ?? '', 80)}`.trimEnd()
    case 'tool_result':
      return event.status === 'failed'
        ? `✗ ${line(event.output ?? event.title ?? 'the tool failed')}`
        : undefined
    case 'plan':
      return (Array.isArray(event.entries) ? event.entries : [])
        .map(
          (entry: { content?: unknown; status?: unknown }) =>
            `${entry.status === 'completed' ? '☑' : '☐'} ${line(entry.content)}`,
        )
        .join('\n')
    case 'permission_request':
      return `? ${line((event.tool_call as { title?: unknown } | undefined)?.title)}: waits for an answer (./oubliette approval list --session-id ${event.session_id})`
    case 'caller_tool_request':
      return `? ${line(event.tool)}: waits for its caller`
    case 'error':
      return `✗ ${line(event.message, 500)}`
    case 'status':
      if (event.status === 'queued')
        return `… queued at place ${line(event.queue_position)}: ${line(event.reason)}`
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
        // A script's output is passed on to the byte; an agent's words are given an end of line if they have none.
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
