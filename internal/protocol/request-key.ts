// What tells one request of a container from all others, and stays the same when it is sent again after a lost
// connection: its text without the id of the message, which is new each time. Found without parsing it. Events are sent
// again from the first that is not committed, with more behind it: there the beginning counts.
import { hash } from 'node:crypto'

const edge = 2048
const eventsEdge = 512

/** Undefined for answers, which are not sent again. */
export function requestKey(text: string): { key: string; what: string } | undefined {
  // Within the beginning only: the rest may be megabytes of something else.
  const head = text.slice(0, 400)
  const found = /"method":"([A-Za-z_]{1,40})"/.exec(head)
  if (!found) return undefined
  const what = found[1]!
  const from = found.index
  const part =
    what === 'events'
      ? text.slice(from, from + eventsEdge)
      : text.length - from <= 2 * edge
        ? text.slice(from)
        : `${text.slice(from, from + edge)} ${text.length - from} ${text.slice(-edge)}`
  return { key: hash('sha1', part), what }
}
