// What a chat shows first: the last events of the session, from the beginning of a message on.
import { callTool, type Endpoint } from '../client/call.ts'
import type { RunEvent } from '../run/events.ts'
import { createScreen } from '../run/screen.ts'
import { createRenderer } from '../run/transcript/renderer.ts'
import { columnsOf, hasColours } from '../tool-command/output/text.ts'

export type Chat = {
  where: Endpoint
  base: string
  home: string
  session: Record<string, unknown>
  project: string
  lines: number
}

/** The events after `since_index`. */
async function readPages(where: Endpoint, session_id: string, since_index: number): Promise<RunEvent[]> {
  const found: RunEvent[] = []
  for (let more = true; more; ) {
    const page = await callTool(where, 'session', {
      action: 'events',
      session_id,
      since_index: found.at(-1)?.index ?? since_index,
      max_events: 1000,
    })
    const events = page.events as RunEvent[]
    found.push(...events)
    more = page.has_more === true && events.length > 0
  }
  return found
}

const begins = ({ type, role }: RunEvent): boolean => type === 'message' && role === 'user'

/** The last events, and whether there are earlier ones. A message of which the beginning is missing is left out. */
export async function lastEvents(
  where: Endpoint,
  session: Record<string, unknown>,
  most: number,
): Promise<{ events: RunEvent[]; earlier: boolean; last_index: number }> {
  const since = Math.max(-1, Number(session.last_index) - most)
  const all = await readPages(where, String(session.session_id), since)
  const last_index = all.at(-1)?.index ?? since
  if (since === -1) return { events: all, earlier: false, last_index }
  const first = all.findIndex(begins)
  return { events: first === -1 ? [] : all.slice(first), earlier: true, last_index }
}

/** Where a chat writes. */
export function openScreen() {
  const { stdout, stderr } = process
  const colours = hasColours(stderr)
  const columns = () => columnsOf(stderr)
  const screen = createScreen({ out: stdout, err: stderr, columns, colours })
  const renderer = createRenderer({ columns, colours, live: screen.terminal, messages: true })
  return { screen, renderer, colours }
}
