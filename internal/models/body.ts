// Request bodies are known as a whole before they are sent on: so that they can be signed, sent once more on another
// connection, and, for OpenAI's chat, which tells the tokens of a stream only if it is asked to, be made to ask.
import type { IncomingMessage } from 'node:http'
import { Fault } from '../fault.ts'

const largest_bytes = 64 * 1024 * 1024
const longest_ms = 60_000
/** Parsing stops everything else for as long as it takes. */
const parsed_bytes = 4 * 1024 * 1024
const wish = Buffer.from('"stream_options":{"include_usage":true},')

/** `hold` hears of every part, and may throw. */
export async function wholeBody(request: IncomingMessage, hold: (bytes: number) => void): Promise<Buffer> {
  const parts: Buffer[] = []
  let held = 0
  // It comes from a process beside us: whoever takes longer holds room that others want.
  const late = setTimeout(() => request.destroy(), longest_ms)
  try {
    for await (const part of request as AsyncIterable<Buffer>) {
      held += part.length
      if (held > largest_bytes)
        throw new Fault('invalid', `the request is larger than ${largest_bytes / 1024 / 1024} MiB`)
      hold(part.length)
      parts.push(part)
    }
  } finally {
    clearTimeout(late)
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts)
}

/** The same request, with the wish to be told the tokens. */
export function askForUsage(body: Buffer): Buffer {
  // Asked for already, or no stream: said without parsing what may be a megabyte.
  if (body.includes('"include_usage"') || !/"stream"\s*:\s*true/.test(body.toString('latin1'))) return body
  const from = body.indexOf('{')
  if (!body.includes('"stream_options"') && /^\s*\{\s*"/.test(body.toString('latin1', 0, from + 64)))
    return Buffer.concat([body.subarray(0, from + 1), wish, body.subarray(from + 1)])
  if (body.length > parsed_bytes) return body
  try {
    const request = JSON.parse(body.toString('utf8')) as Record<string, unknown>
    const stream_options = { ...(request.stream_options as object | undefined), include_usage: true }
    return Buffer.from(JSON.stringify({ ...request, stream_options }))
  } catch {
    // The provider says better than we what is wrong with it.
    return body
  }
}
