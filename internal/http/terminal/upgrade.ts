// `GET /projects/{project_id}/terminal`: a WebSocket that is a terminal in the container of a project. A request that is
// malformed or not authenticated gets an HTTP error. What the door refuses is reported on the WebSocket, because a browser
// cannot read the response to a failed upgrade, and because a container may take minutes to start.
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import type { Caller } from '../../auth/caller.ts'
import type { OpenStreams } from '../../auth/open-streams.ts'
import { createRate } from '../../auth/rate.ts'
import { Fault } from '../../fault.ts'
import { newRequestId } from '../../ids.ts'
import type { Log } from '../../log.ts'
import { openTerminal } from '../../tools/declarations/terminal.ts'
import type { Door } from '../../tools/door.ts'
import { errorResponse, logged } from '../errors.ts'
import type { Guard } from '../guard.ts'
import { createConnection } from './connection.ts'
import { createOutputRate } from './output-rate.ts'

export type UpgradeOptions = {
  guard: Guard
  /** The caller of the request. Throws `unauthenticated`. */
  check: (authorization: string | undefined, address: string) => Promise<Caller>
  challenge: (host: string, presented: boolean) => string
  door: Pick<Door, 'run'>
  streams: OpenStreams
  idle_minutes: number
  log: Log
}

const path = /^\/projects\/([^/?]+)\/terminal(?:\?|$)/
const parameters = ['workspace_id', 'command', 'term', 'rows', 'cols']
/** A paste is split by the client; a larger message ends the connection. */
const messageBytes = 1024 * 1024
/** Output of all terminals of one project: more than anyone reads, and little enough to leave the event loop to others. */
const outputRate = { per_second: 8 * 1024 * 1024, burst: 2 * 1024 * 1024 }

export const isTerminalUpgrade = ({ headers, url, method }: IncomingMessage): boolean =>
  method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket' && path.test(url ?? '')

function requestOf(url: string) {
  const { pathname, searchParams } = new URL(url, 'http://server')
  const unknown = [...searchParams.keys()].find((name) => !parameters.includes(name))
  if (unknown !== undefined)
    throw new Fault('invalid', `unknown parameter "${unknown.slice(0, 80)}"`, {
      hint: `parameters are ${parameters.join(', ')}`,
    })
  const text = (name: string) => searchParams.get(name) ?? undefined
  const number = (name: string) => (text(name) === undefined ? undefined : Number(text(name)))
  const command = searchParams.getAll('command')
  return {
    project_id: decodeURIComponent(path.exec(pathname)![1]!),
    workspace_id: text('workspace_id'),
    // One parameter for each word.
    command: command.length > 0 ? command : undefined,
    term: text('term'),
    rows: number('rows'),
    cols: number('cols'),
  }
}

async function refuse(socket: Duplex, fault: Fault, headers: Record<string, string>): Promise<void> {
  const response = errorResponse(fault, { headers: { ...headers, Connection: 'close' } })
  const body = await response.text()
  const lines = [...response.headers].map(([name, value]) => `${name}: ${value}`)
  socket.end(
    `HTTP/1.1 ${response.status} Refused\r\n${lines.join('\r\n')}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
}

export function createTerminalUpgrade(options: UpgradeOptions) {
  const { guard, door, log } = options
  const sockets = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: messageBytes,
  })
  const rate = createOutputRate(createRate(outputRate))

  /** A page cannot set the header of a WebSocket: its credential would be found here too. */
  const callerOf = (incoming: IncomingMessage) =>
    options.check(incoming.headers.authorization, incoming.socket.remoteAddress ?? 'unknown')

  async function accept(incoming: IncomingMessage, socket: Duplex, head: Buffer, request_id: string) {
    const { host, origin } = incoming.headers
    guard({ host, origin }, incoming.socket.localAddress)
    const caller = await callerOf(incoming)
    const request = requestOf(incoming.url ?? '')
    if (socket.destroyed) return
    sockets.handleUpgrade(incoming, socket, head, (web) => {
      createConnection(web, {
        caller,
        streams: options.streams,
        rate,
        idle_minutes: options.idle_minutes,
        open: (signal, progress) =>
          door.run(openTerminal, { caller, request_id, via: 'http', signal, progress }, request),
        failed: (thrown) => logged(thrown, log, { request_id, path: 'terminal' }),
      })
    })
  }

  return (incoming: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const request_id = newRequestId()
    const onError = () => socket.destroy()
    socket.on('error', onError)
    accept(incoming, socket, head, request_id).catch(async (thrown: unknown) => {
      const fault = logged(thrown, log, { request_id, method: 'GET', path: 'terminal' })
      const { host, authorization } = incoming.headers
      const asks = fault.kind === 'unauthenticated'
      await refuse(socket, fault, {
        'X-Request-Id': request_id,
        ...(asks ? { 'WWW-Authenticate': options.challenge(host ?? '', authorization !== undefined) } : {}),
      })
    })
  }
}
