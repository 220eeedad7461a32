// Server-Sent Events with as little work per event as possible: blocks are counted and looked at, not parsed.
import { Agent, type ClientRequest, request } from 'node:http'

const agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY })

export function follow(
  url: string,
  token: string,
  on_event: (block: string) => void,
): Promise<{ close(): void; asked: ClientRequest }> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, headers: { authorization: `Bearer ${token}` } })
    asked.on('error', reject)
    asked.on('response', (incoming) => {
      let left = ''
      incoming.setEncoding('utf8').on('data', (chunk: string) => {
        left += chunk
        for (let at = left.indexOf('\n\n'); at >= 0; at = left.indexOf('\n\n')) {
          const block = left.slice(0, at)
          left = left.slice(at + 2)
          if (!block.startsWith(':')) on_event(block)
        }
      })
      incoming.on('error', () => undefined)
      resolve({ asked, close: () => void asked.destroy() })
    })
    asked.end()
  })
}
