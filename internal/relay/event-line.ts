// An event as one line of JSON that every later station can take: bounded, and free of the two things that JSON allows
// and a database refuses, lone surrogates and NUL.

const LINE_CHARS = 1024 * 1024
const KEPT_CHARS = 16 * 1024

const suspicious = /\\u(?:0000|d[89a-f])/i

function storable(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed().replaceAll('\0', '\ufffd')
  if (Array.isArray(value)) return value.map(storable)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [storable(key), storable(inner)]))
}

/** Long texts are cut, deep in the event too; `truncated` tells that this is not all of it. */
function shortened(value: unknown, limit: number): unknown {
  if (typeof value === 'string')
    return value.length > limit ? `${value.slice(0, limit).toWellFormed()}…` : value
  if (Array.isArray(value)) return value.slice(0, 100).map((inner) => shortened(inner, limit))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, 100)
      .map(([key, inner]) => [key.slice(0, 200), shortened(inner, limit)]),
  )
}

export function encodeEvent(seq: number, event: { type: string; [field: string]: unknown }): string {
  const whole = { at: new Date().toISOString(), ...event, seq }
  let line = JSON.stringify(whole)
  for (let limit = KEPT_CHARS; line.length > LINE_CHARS && limit > 16; limit /= 4)
    line = JSON.stringify({ ...(shortened(whole, limit) as object), truncated: true })
  if (line.length > LINE_CHARS)
    line = JSON.stringify({ seq, type: event.type, at: whole.at, truncated: true })
  if (suspicious.test(line)) line = JSON.stringify(storable(JSON.parse(line)))
  return `${line}\n`
}

/** Stand-ins for events whose text is gone, so that the numbers after them still follow. */
export function lostEvents(first: number, next: number) {
  const message = 'this event was lost: the journal was removed inside the container'
  const events = Array.from({ length: next - first }, (_, i) =>
    encodeEvent(first + i, { type: 'error', message }).trimEnd(),
  )
  return { first_seq: first, last_seq: next - 1, events: events.join(',') }
}
