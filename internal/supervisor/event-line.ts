// An event as one line of JSON that every later stage accepts: bounded in length, depth and number of values, and free
// of lone surrogates and NUL, which JSON allows and the database does not.
import { measureJson } from '../event-loop/json-bounds.ts'

const lineChars = 1024 * 1024
const keptChars = 16 * 1024
/** A batch of events is one frame, which holds no more than `jsonBounds` allows. */
const lineValues = 8_000
const lineDepth = 64
const keptDepth = 16

const suspicious = /\\u(?:0000|d[89a-f])/i

function storable(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed().replaceAll('\0', '\ufffd')
  if (Array.isArray(value)) return value.map(storable)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [storable(key), storable(inner)]))
}

/** Truncates long texts at any depth; `truncated` marks the event. */
function shortened(value: unknown, limit: number, depth = 0): unknown {
  if (typeof value === 'string')
    return value.length > limit ? `${value.slice(0, limit).toWellFormed()}…` : value
  if (typeof value !== 'object' || value === null) return value
  if (depth === keptDepth) return '…'
  if (Array.isArray(value)) return value.slice(0, 100).map((inner) => shortened(inner, limit, depth + 1))
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, 100)
      .map(([key, inner]) => [key.slice(0, 200), shortened(inner, limit, depth + 1)]),
  )
}

function fits(line: string): boolean {
  if (line.length > lineChars) return false
  const { depth, containers, commas } = measureJson(line, lineValues)
  return depth <= lineDepth && containers + commas <= lineValues
}

export function encodeEvent(seq: number, event: { type: string; [field: string]: unknown }): string {
  const whole = { at: new Date().toISOString(), ...event, seq }
  let line = JSON.stringify(whole)
  for (let limit = keptChars; !fits(line) && limit > 16; limit /= 4)
    line = JSON.stringify({ ...(shortened(whole, limit) as object), truncated: true })
  if (!fits(line)) line = JSON.stringify({ seq, type: event.type, at: whole.at, truncated: true })
  if (suspicious.test(line)) line = JSON.stringify(storable(JSON.parse(line)))
  return `${line}\n`
}

/** Placeholders for lost events, so that sequence numbers have no gap. */
export function lostEvents(first: number, next: number) {
  const message = 'this event was lost: the journal was removed inside the container'
  const lines = Array.from({ length: next - first }, (_, i) =>
    encodeEvent(first + i, { type: 'error', message }).trimEnd(),
  )
  return { first_seq: first, last_seq: next - 1, lines, events: lines.join(',') }
}
