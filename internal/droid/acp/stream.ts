// The agent's stdin and stdout as a stream of protocol messages. Agents also print other text to stdout, and lines of any
// length: what is not a message is reported and skipped, and buffers are bounded. Reading stops while the sink has no room.

import type { Readable, Writable } from 'node:stream'
import type { AnyMessage, Stream } from '@agentclientprotocol/sdk'
import type { Sink } from '../droid.ts'

const lineBytes = 32 * 1024 * 1024
const shownChars = 500
const maxReported = 20

function parse(line: string): AnyMessage | undefined {
  if (!line.startsWith('{')) return undefined
  try {
    const message = JSON.parse(line) as { jsonrpc?: unknown } | null
    return message?.jsonrpc === '2.0' ? (message as AnyMessage) : undefined
  } catch {
    return undefined
  }
}

/** Lines of at most `limit` bytes; of a longer line only the beginning, with `too_long`. */
export async function* boundedLines(
  input: AsyncIterable<Buffer>,
  limit = lineBytes,
): AsyncGenerator<{ text: string; too_long: boolean }> {
  let parts: Buffer[] = []
  let held = 0
  let skipping = false
  for await (const chunk of input) {
    for (let from = 0; ; ) {
      const end = chunk.indexOf(0x0a, from)
      const piece = chunk.subarray(from, end === -1 ? chunk.length : end)
      if (!skipping) {
        parts.push(piece)
        held += piece.length
        if (held > limit) {
          yield { text: Buffer.concat(parts).toString('utf8', 0, shownChars), too_long: true }
          skipping = true
          parts = []
          held = 0
        }
      }
      if (end === -1) break
      if (!skipping) yield { text: Buffer.concat(parts).toString('utf8'), too_long: false }
      skipping = false
      parts = []
      held = 0
      from = end + 1
    }
  }
}

type Update = { sessionUpdate: string; [field: string]: unknown }

/** Updates bypass the library, which would validate each chunk in full and drop kinds that it does not know. */
function updateIn(message: AnyMessage): Update | undefined {
  if (!('method' in message) || message.method !== 'session/update') return undefined
  const update = (message.params as { update?: { sessionUpdate?: unknown } } | undefined)?.update
  return typeof update?.sessionUpdate === 'string' ? (update as Update) : undefined
}

export function acpStream(
  stdin: Writable,
  stdout: Readable,
  sink: Sink,
  on_update: (update: Update) => void,
): Stream {
  let reported = 0
  const report = (text: string, why: string) => {
    if (text.trim() === '' || ++reported > maxReported) return
    sink.emit({
      type: 'update',
      update: { sessionUpdate: 'not_protocol', why, text: text.slice(0, shownChars).toWellFormed() },
      ...(reported === maxReported ? { note: 'further lines are not reported' } : {}),
    })
  }
  async function* messages(): AsyncGenerator<AnyMessage> {
    for await (const { text, too_long } of boundedLines(stdout)) {
      const message = too_long ? undefined : parse(text)
      const update = message && updateIn(message)
      if (update) on_update(update)
      else if (message) yield message
      else report(text, too_long ? `line longer than ${lineBytes} bytes` : 'not a JSON-RPC message')
      await sink.room()
    }
  }
  return {
    readable: ReadableStream.from(messages()) as ReadableStream<AnyMessage>,
    writable: new WritableStream<AnyMessage>({
      write: (message) =>
        new Promise((resolve, reject) => {
          stdin.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(error) : resolve()))
        }),
    }),
  }
}
