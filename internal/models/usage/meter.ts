// Reads token usage from an answer while it is streamed. It does not delay the answer and never fails: an answer that it cannot
// parse has no usage, and lines that are too long are skipped. It scans bytes, and parses only lines that mention usage, because
// decoding every event of every stream would cost too much.
import { larger, readUsage, type UsageReading } from './usage.ts'

export interface Meter {
  take(chunk: Buffer): void
  /** The usage read so far, also of an incomplete answer. */
  end(): Promise<UsageReading | undefined>
}
/** Parses one JSON text off the event loop. */
export type Elsewhere = (parts: Buffer[]) => Promise<UsageReading[]>

const lineBytes = 8 * 1024 * 1024
const wholeBytes = 16 * 1024 * 1024
/** Longer texts are parsed elsewhere. */
const parsedBytes = 64 * 1024

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Not JSON, or incomplete: it has no usage.
    return undefined
  }
}

function createReadings() {
  let found: UsageReading | undefined
  const take = (reading: UsageReading | undefined) => {
    if (reading) found = larger(found, reading)
  }
  return {
    take,
    add: (value: unknown) => take(readUsage(value)),
    get: () => found,
  }
}

const dataField = Buffer.from('data:')

/** Server-sent events: only lines that mention usage are parsed. */
function eventsMeter(elsewhere: Elsewhere): Meter {
  const readings = createReadings()
  let parts: Buffer[] = []
  let held = 0
  /** The last line that was too long to be parsed here: an answer that is repeated as a whole at its end. */
  let long: Buffer | undefined
  const line = (bytes: Buffer) => {
    // Most lines are text of the answer; this is cheaper than parsing each.
    if (!bytes.includes('sage')) return
    if (bytes.length > parsedBytes) {
      if (bytes.subarray(0, 5).equals(dataField)) long = bytes.subarray(dataField.length)
      return
    }
    const text = bytes.toString('utf8').trim()
    if (text.startsWith('data:')) readings.add(parsed(text.slice('data:'.length)))
  }
  const keep = (rest: Buffer) => {
    held += rest.length
    if (held > lineBytes) parts = []
    else if (rest.length > 0) parts.push(rest)
  }
  const lines = (whole: Buffer) => {
    let from = 0
    for (let end = whole.indexOf(0x0a); end !== -1; end = whole.indexOf(0x0a, from)) {
      line(whole.subarray(from, end))
      from = end + 1
    }
  }
  return {
    take(chunk) {
      const last = chunk.lastIndexOf(0x0a)
      if (last === -1) return keep(chunk)
      const first = parts.length === 0 ? 0 : chunk.indexOf(0x0a) + 1
      // The line that began earlier; then those that are whole in this chunk, if any of them is of interest.
      if (first > 0) line(Buffer.concat([...parts, chunk.subarray(0, first - 1)]))
      if (first <= last && chunk.includes('sage', first)) lines(chunk.subarray(first, last + 1))
      parts = []
      held = 0
      keep(chunk.subarray(last + 1))
    },
    async end() {
      if (parts.length > 0) line(Buffer.concat(parts))
      if (long) for (const reading of await elsewhere([long])) readings.take(reading)
      return readings.get()
    },
  }
}

function jsonMeter(elsewhere: Elsewhere): Meter {
  let parts: Buffer[] = []
  let held = 0
  return {
    take(chunk) {
      held += chunk.length
      if (held > wholeBytes) parts = []
      else parts.push(chunk)
    },
    async end() {
      const readings = createReadings()
      if (held > parsedBytes) {
        if (parts.length > 0) for (const reading of await elsewhere(parts)) readings.take(reading)
        return readings.get()
      }
      const value = parsed(Buffer.concat(parts).toString('utf8'))
      // Gemini streams a list when it is not asked for events.
      for (const one of Array.isArray(value) ? value : [value]) readings.add(one)
      return readings.get()
    },
  }
}

const preludeBytes = 12
const checksumBytes = 4
const messageBytes = 16 * 1024 * 1024

/**
 * Decodes Amazon's event stream encoding: length-prefixed messages of headers and a payload. Takes chunks and returns the
 * payloads of complete messages as text. Checksums are left to the agent that receives the stream.
 */
function eventStreamMessages(): (chunk: Buffer) => string[] {
  let held: Buffer = Buffer.alloc(0)
  let lost = false
  return (chunk) => {
    if (lost) return []
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk])
    const found: string[] = []
    while (held.length >= preludeBytes) {
      const total = held.readUInt32BE(0)
      const headers = held.readUInt32BE(4)
      if (total > messageBytes || total < preludeBytes + headers + checksumBytes) {
        // Not this encoding after all: nothing behind it can be found again.
        lost = true
        held = Buffer.alloc(0)
        return found
      }
      if (held.length < total) break
      found.push(held.toString('utf8', preludeBytes + headers, total - checksumBytes))
      held = held.subarray(total)
    }
    return found
  }
}

/** Amazon's binary framing; a model's own events are in it, encoded once more. */
function binaryMeter(): Meter {
  const readings = createReadings()
  const messages = eventStreamMessages()
  return {
    take(chunk) {
      for (const payload of messages(chunk)) {
        const value = parsed(payload) as { bytes?: unknown } | undefined
        readings.add(
          typeof value?.bytes === 'string' ? parsed(Buffer.from(value.bytes, 'base64').toString()) : value,
        )
      }
    },
    end: async () => readings.get(),
  }
}

export function createMeter(content_type: string | undefined, elsewhere: Elsewhere): Meter | undefined {
  if (content_type?.includes('text/event-stream')) return eventsMeter(elsewhere)
  if (content_type?.includes('json')) return jsonMeter(elsewhere)
  if (content_type?.includes('vnd.amazon.eventstream')) return binaryMeter()
  return undefined
}
