// Replaces events that the server refuses to process: without their content, but with their numbers, and with the fields that
// determine the state of the session.
import type { Numbered } from './log-writer.ts'

const kept: Record<string, string[]> = {
  status: ['status', 'reason', 'agent_session_id'],
  completion: ['turn_id', 'stop_reason'],
}
const mostCharacters = 500

function bare({ data, ...event }: Numbered): Numbered {
  const fields = (kept[event.type] ?? []).flatMap((name) => {
    const value = data[name]
    return typeof value === 'string' ? [[name, value.slice(0, mostCharacters).toWellFormed()]] : []
  })
  return { ...event, data: { ...Object.fromEntries(fields), truncated: true } }
}

/** Events that do not determine the state become `error` events with the reason. */
export const withoutContent = (events: Numbered[], reason: string): Numbered[] =>
  events.map((event) =>
    Object.hasOwn(kept, event.type)
      ? bare(event)
      : {
          ...event,
          type: 'error',
          data: { message: `dropped an event of type ${event.type}: ${reason}`, dropped: true },
        },
  )
