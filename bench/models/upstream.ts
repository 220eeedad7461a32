// A provider that answers at once: `events` of 120 bytes each, as a stream, and then what it cost.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

const text = 'word '.repeat(8)
const delta = `event: content_block_delta\ndata: ${JSON.stringify({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })}\n\n`
const usage = { input_tokens: 10, output_tokens: 10 }
const end = `event: message_delta\ndata: ${JSON.stringify({ type: 'message_delta', usage })}\n\n`

export type Wanted = { events: number; at_once: number; every_ms?: number }

const server = createServer({ noDelay: true }, async (request, response) => {
  let body = ''
  for await (const chunk of request.setEncoding('utf8')) body += chunk
  const { events, at_once, every_ms } = JSON.parse(body) as Wanted
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.flushHeaders()
  const chunk = delta.repeat(at_once)
  for (let sent = 0; sent < events; sent += at_once) {
    if (!response.write(chunk)) await once(response, 'drain')
    if (every_ms) await pause(every_ms)
  }
  response.end(end)
})
server.listen(0, '127.0.0.1', () =>
  process.send?.({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
)
// A benchmark that fails must not leave it behind.
process.once('disconnect', () => process.exit(0))
