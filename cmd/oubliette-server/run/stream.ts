// The events of a session over SSE, from the first on. A connection that breaks is made again from the last event that
// arrived, so that a server that is restarted meanwhile costs a pause and nothing else.
import { setTimeout as sleep } from 'node:timers/promises'
import { type EventSourceMessage, EventSourceParserStream } from 'eventsource-parser/stream'
import { Fault, messageOf } from '../../../internal/fault.ts'
import type { RunEvent } from './outcome.ts'

const patience_ms = 60_000
const pause_ms = 250

async function open(url: URL, token: string, last: number): Promise<AsyncIterable<EventSourceMessage>> {
  const response = await fetch(url, {
    headers: { authorization: `Bearer ${token}`, 'last-event-id': String(last) },
  })
  if (response.ok && response.body)
    return response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream())
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
      for await (const { data } of await open(url, token, last)) {
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
