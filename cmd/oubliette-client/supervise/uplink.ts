// The way to the server: dial, say hello, serve commands until the connection ends, and again, for ever. The server
// may be away for as long as it likes.

import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../../internal/fault.ts'
import type { Log } from '../../../internal/log.ts'
import { createPeer, type Handlers, type Peer } from '../../../internal/protocol/peer.ts'

const firstMs = 50
// A dial of a local socket costs next to nothing, and whoever waits for the server to come back waits for this too.
const longestMs = 250
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
  /** One attempt did not succeed; the next follows anyway. */
  failed?(error: unknown): void
}): Promise<void> {
  const { log, signal } = options
  let pause_ms = firstMs
  let told = ''
  while (!signal.aborted) {
    try {
      const peer = createPeer(await connect(options.socket, signal), { handlers: options.handlers })
      const onAbort = () => peer.close()
      signal.addEventListener('abort', onAbort, { once: true })
      try {
        options.connected(peer, await peer.request('hello', options.hello(), { timeout_ms: helloMs }))
        pause_ms = firstMs
        told = ''
        log.info('connected to the server')
        const why = await peer.closed
        log.info('the connection to the server ended', { why: why.message })
      } finally {
        peer.close()
        signal.removeEventListener('abort', onAbort)
      }
    } catch (error) {
      // Once for each new reason: a server that is away for a day is no reason to fill the log.
      const why = messageOf(error)
      if (why !== told && !signal.aborted) log.warn('the server cannot be reached; trying on', { why })
      told = why
      options.failed?.(error)
    }
    await delay(pause_ms * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {})
    pause_ms = Math.min(pause_ms * 2, longestMs)
  }
}
