// What is known about a frame before it is parsed: what parsing it will cost, and which request it is. An empty object is two
// characters of text and about fifty bytes of memory, and scanning is cheap compared to parsing.
import { hash } from 'node:crypto'
import { jsonBounds, measureJson, problemOf } from '../event-loop/json-bounds.ts'

const perFrame = 64
const perContainer = 56
const perElement = 12

/** A supervisor's hello lists the state of all its sessions, of which there may be thousands. */
const helloValues = 100_000
const isHello = (text: string) => text.slice(0, 200).includes('"method":"hello"')

/** `problem` is set if the frame must not be parsed. */
export type FrameCost = { weight: number; problem: string | undefined }

export function costOfFrame(text: string): FrameCost {
  const values = isHello(text) ? helloValues : jsonBounds.values
  const measured = measureJson(text, values)
  const weight = text.length + perFrame + measured.containers * perContainer + measured.commas * perElement
  return { weight, problem: problemOf(measured, values) }
}

const edge = 2048
const eventsEdge = 512

/**
 * Identifies a request of a container across retries after a lost connection: its text without the id of the message, which
 * is new each time. Events are sent again from the first that is not committed, followed by more, so only the beginning
 * counts there. Undefined for answers, which are not sent again.
 */
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
