// Keeps the client connected to the server: connect, send hello, serve commands until the connection ends, and reconnect. The
// server may be unreachable for any length of time.

import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../internal/fault.ts'
import type { Log } from '../../../internal/log.ts'
import { createPeer, type Handlers, type Peer } from '../../../internal/protocol/peer.ts'

const firstPauseMs = 50
// Connecting to a local socket is cheap, and requests that wait for the server wait for this pause too.
const maxPauseMs = 250
const helloMs = 10_000

async function connect(path: string, signal: AbortSignal): Promise<Socket> {
  const socket = createConnection(path)
  try {
    await once(socket, 'connect', { signal })
    return socket
  } catch (error) {
    socket.destroy()
    throw error
  }
}

export async function keepConnected(options: {
  socket: string
  handlers: Handlers
  hello: () => object
  log: Log
  signal: AbortSignal
  connected(peer: Peer, answer: unknown): void
  /** One attempt failed; the next one follows. */
  failed?(error: unknown): void
}): Promise<void> {
  const { log, signal } = options
  let pause_ms = firstPauseMs
  let logged = ''
  while (!signal.aborted) {
    try {
      const peer = createPeer(await connect(options.socket, signal), { handlers: options.handlers })
      const onAbort = () => peer.close()
      signal.addEventListener('abort', onAbort, { once: true })
      try {
        options.connected(peer, await peer.request('hello', options.hello(), { timeout_ms: helloMs }))
        pause_ms = firstPauseMs
        logged = ''
        log.info('connected to the server')
        const why = await peer.closed
        log.info('disconnected from the server', { reason: why.message })
      } finally {
        peer.close()
        signal.removeEventListener('abort', onAbort)
      }
    } catch (error) {
      // Logged once per reason, so that a long outage does not fill the log.
      const why = messageOf(error)
      if (why !== logged && !signal.aborted) log.warn('server unreachable, retrying', { reason: why })
      logged = why
      options.failed?.(error)
    }
    await delay(pause_ms * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {})
    pause_ms = Math.min(pause_ms * 2, maxPauseMs)
  }
}
