// The Node HTTP server under the app: timeouts of requests, refusal of invalid ones, and shutdown.
import {
  createServer,
  type IncomingMessage,
  type Server as NodeServer,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { getRequestListener, RequestError } from '@hono/node-server'
import type { Hono } from 'hono'
import { parseAddress } from '../config/place.ts'
import { Fault } from '../fault.ts'
import { createThrottledWarn } from '../lib/throttled-log.ts'
import type { Log } from '../log.ts'
import type { Env } from './app.ts'
import { isArchivePath } from './archive.ts'
import { errorResponse, logged } from './errors.ts'

// A client that sends its header or body too slowly is disconnected; responses have no time limit. The time of a body is
// limited below, because Node has one limit for all requests, and an archive may be as long as it likes.
const timeouts = {
  headersTimeout: 15_000,
  requestTimeout: 0,
  keepAliveTimeout: 75_000,
  connectionsCheckingInterval: 5_000,
}

const bodyMs = 60_000

function limitBody(server: NodeServer, incoming: IncomingMessage): void {
  const { headers, socket } = incoming
  if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) return
  if (isArchivePath(incoming.url)) return
  const late = Object.assign(new Error('the body did not arrive in time'), {
    code: 'ERR_HTTP_REQUEST_TIMEOUT',
  })
  const timer = setTimeout(() => server.emit('clientError', late, socket), bodyMs).unref()
  const over = () => clearTimeout(timer)
  incoming.once('end', over).once('close', over)
}

/** Takes over connections whose request asks for another protocol. */
export type Upgrade = {
  /** Other requests with an Upgrade header are answered as if they had none. */
  wanted(incoming: IncomingMessage): boolean
  accept(incoming: IncomingMessage, socket: Duplex, head: Buffer): void
}

export function createNodeServer(
  app: Hono<Env>,
  { max_connections, upgrade, log }: { max_connections: number; upgrade?: Upgrade | undefined; log: Log },
): NodeServer {
  const listener = getRequestListener(app.fetch as Parameters<typeof getRequestListener>[0], {
    errorHandler: (thrown) => {
      const fault = thrown instanceof RequestError ? new Fault('invalid', 'invalid request line') : thrown
      return errorResponse(logged(fault, log, {}))
    },
  })
  const how = {
    ...timeouts,
    maxHeaderSize: 16 * 1024,
    shouldUpgradeCallback: upgrade?.wanted ?? (() => false),
  }
  const server = createServer(how, (incoming, outgoing) => {
    limitBody(server, incoming)
    listener(incoming, outgoing).catch((error: unknown) => log.error('failed to send a response', { error }))
  })
  if (upgrade) server.on('upgrade', upgrade.accept)
  server.on('checkContinue', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    // An archive is asked for when the caller may send it.
    if (!isArchivePath(incoming.url)) outgoing.writeContinue()
    server.emit('request', incoming, outgoing)
  })
  server.on('clientError', refuse)
  server.maxConnections = max_connections
  const warn = createThrottledWarn(log)
  server.on('drop', () => warn('', 'refused a connection: max_connections are open', { max_connections }))
  return server
}

/** A request that the parser of Node rejects never reaches the app; it gets the same shape of error. */
function refuse(error: NodeJS.ErrnoException, socket: Socket) {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const [status, fault] =
    error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
      ? ([408, new Fault('timeout', 'the request did not arrive in time')] as const)
      : error.code === 'HPE_HEADER_OVERFLOW'
        ? ([431, new Fault('invalid', 'the request header is too large')] as const)
        : ([400, new Fault('invalid', 'not an HTTP request')] as const)
  const body = JSON.stringify({ error: fault.shape() })
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
}

export function listen(server: NodeServer, address: string): Promise<{ url: string }> {
  const { host, port } = parseAddress(address)
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reason = error.code === 'EADDRINUSE' ? 'is in use by another program' : `(${error.message})`
      reject(new Fault('unavailable', `cannot listen on ${address}: it ${reason}`, { cause: error }))
    })
    server.listen(port, host, () => {
      const bound = server.address()
      const actual = typeof bound === 'object' && bound ? bound.port : port
      resolve({ url: `http://${host.includes(':') ? `[${host}]` : host}:${actual}` })
    })
  })
}

/** Stops accepting connections, waits for running requests, and closes the remaining connections at the deadline. */
export async function stop(server: NodeServer, deadline_seconds: number): Promise<void> {
  if (!server.listening) return
  const closed = Promise.withResolvers<void>()
  server.close(() => closed.resolve())
  // A connection becomes idle after its last response; Node would keep it open for the next request.
  const idle = setInterval(() => server.closeIdleConnections(), 20)
  const deadline = setTimeout(() => server.closeAllConnections(), deadline_seconds * 1000)
  await closed.promise
  clearInterval(idle)
  clearTimeout(deadline)
}
