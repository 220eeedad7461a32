// Server-Sent Events of a benchmark. The JSON of an event stays text, to keep the cost per event low.
import { Agent, type ClientRequest, request } from 'node:http'
import { createParser, type EventSourceMessage } from 'eventsource-parser'

const agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY })

export function follow(
  url: string,
  token: string,
  onEvent: (event: EventSourceMessage) => void,
): Promise<{ close(): void; asked: ClientRequest }> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, headers: { authorization: `Bearer ${token}` } })
    asked.on('error', reject)
    asked.on('response', (incoming) => {
      incoming.setEncoding('utf8').on('data', createParser({ onEvent }).feed)
      incoming.on('error', () => undefined)
      resolve({ asked, close: () => void asked.destroy() })
    })
    asked.end()
  })
}
