// The events of a session over SSE, from the first on. A connection that breaks is made again from the last event that
// arrived, so that a server that is restarted meanwhile costs a pause and nothing else.
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, messageOf } from '../../../internal/fault.ts'
import type { RunEvent } from './outcome.ts'

const patience_ms = 60_000
const pause_ms = 250

/** The `data` of each event of a stream, as it comes. */
async function* dataOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let left = ''
  for await (const chunk of body) {
    const blocks = (left + decoder.decode(chunk, { stream: true })).split('\n\n')
    left = blocks.pop() ?? ''
    for (const block of blocks) {
      const data = block.split('\n').filter((line) => line.startsWith('data: '))
      if (data.length > 0) yield data.map((line) => line.slice('data: '.length)).join('\n')
    }
  }
}

async function open(url: URL, token: string, last: number): Promise<AsyncIterable<Uint8Array>> {
  const response = await fetch(url, {
    headers: { authorization: `Bearer ${token}`, 'last-event-id': String(last) },
  })
  if (response.ok && response.body) return response.body
  const text = await response.text()
  // While it starts or stops; what else it refuses it will refuse again.
  if (response.status === 503) throw new Error(text)
  const { error } = JSON.parse(text) as { error: { message: string } }
  throw new Fault('unavailable', `the events cannot be read: ${error.message}`)
}

export async function* readEvents(base: string, token: string, session_id: string): AsyncGenerator<RunEvent> {
  const url = new URL(`/sessions/${session_id}/events`, base)
  let last = -1
  let heard_ms = performance.now()
  for (;;) {
    try {
      for await (const data of dataOf(await open(url, token, last))) {
        const event = JSON.parse(data) as RunEvent
        heard_ms = performance.now()
        if (typeof event.index !== 'number') break
        last = event.index
        yield event
      }
      heard_ms = performance.now()
    } catch (error) {
      if (error instanceof Fault) throw error
      if (performance.now() - heard_ms > patience_ms)
        throw new Fault('unavailable', `the server at ${base} does not answer any more: ${messageOf(error)}`)
    }
    await sleep(pause_ms)
  }
}
