// Events that the server is not to work on any more, in a form that it can: their content is left out, the numbers go on,
// and what the state of the session follows from stays.
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

/** Events that carry no state become `error` events that say so. */
export const withoutContent = (events: Numbered[], reason: string): Numbered[] =>
  events.map((event) =>
    Object.hasOwn(kept, event.type)
      ? bare(event)
      : {
          ...event,
          type: 'error',
          data: { message: `an event of type ${event.type} was dropped: ${reason}`, dropped: true },
        },
  )
