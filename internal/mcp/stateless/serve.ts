// The 2026-07-28 era: every request stands alone. The SDK checks the headers against the body, answers
// `server/discover`, and treats a closed response as cancellation. Subscriptions have a handler of their own, so that
// they can be ended, with a result that informs the client, while calls still run.
import { createMcpHandler, isLegacyRequest } from '@modelcontextprotocol/server'
import type { Log } from '../../log.ts'
import type { EventBus } from '../bus.ts'
import { type Asked, type NewServer, toAuthInfo } from '../server.ts'
import type { WatchedStreams } from '../streams.ts'

type Parts = { newServer: NewServer; bus: EventBus; streams: WatchedStreams; log: Log }

export const isModern = async (request: Request, body: unknown): Promise<boolean> =>
  !(await isLegacyRequest(request, body))

function isListen(body: unknown): boolean {
  return (
    typeof body === 'object' && body !== null && 'method' in body && body.method === 'subscriptions/listen'
  )
}

export function createModern({ newServer, bus, streams, log }: Parts) {
  const options = {
    legacy: 'reject',
    onerror: (error: Error) => log.debug('mcp', { error: error.message }),
  } as const
  const calls = createMcpHandler(() => newServer(), options)
  const subscriptions = createMcpHandler(() => newServer(), { ...options, bus })
  return {
    async fetch(request: Request, asked: Asked, body: unknown): Promise<Response> {
      const more = { authInfo: toAuthInfo(asked), parsedBody: body }
      if (!isListen(body)) return calls.fetch(request, more)
      return await streams.watch(asked.caller, request.signal, () =>
        bus.subscribeAs(asked.caller, () => subscriptions.fetch(request, more)),
      )
    },
    endSubscriptions: () => subscriptions.close(),
    async close() {
      await Promise.all([calls.close(), subscriptions.close()])
    },
  }
}
