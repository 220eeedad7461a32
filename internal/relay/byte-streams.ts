// Connections of a container that carry the bytes of one thing, such as a terminal, so that a flood of them does not share a
// connection with anything else. The server asks the supervisor to connect and gives it a key; the connection begins with a
// request line that carries the key, and everything after the header belongs to the stream. A key works once and not for long.
import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { Fault } from '../fault.ts'
import { terminalPath } from '../protocol/wire.ts'

export interface ByteStreams {
  /** `arrived` rejects with `timeout`, or with the reason of the signal. */
  expect(project_id: string, signal: AbortSignal): { key: string; arrived: Promise<Socket> }
  /** Takes over a connection whose path begins with `terminalPath`. */
  accept(project_id: string, socket: Socket): void
}

const connectMs = 15_000
const headerBytes = 512
const headerMs = 5_000
const end = Buffer.from('\r\n\r\n')
const line = /^GET ([!-~]+) HTTP\/1\.1$/

/** The key of the request; undefined if it is malformed. Bytes after the header stay unread. */
function readKey(socket: Socket, then: (key: string | undefined) => void): void {
  let read: Buffer = Buffer.alloc(0)
  const settle = (key: string | undefined, rest: Buffer) => {
    clearTimeout(timer)
    socket.off('data', take).off('end', give_up).off('error', give_up).off('close', give_up)
    socket.pause()
    if (rest.length > 0) socket.unshift(rest)
    then(key)
  }
  const take = (chunk: Buffer) => {
    read = Buffer.concat([read, chunk])
    const at = read.indexOf(end)
    if (at < 0) return read.length > headerBytes ? give_up() : undefined
    const path = line.exec(read.subarray(0, at).toString('latin1').split('\r\n', 1)[0]!)?.[1]
    const key = path?.startsWith(terminalPath) ? path.slice(terminalPath.length) : undefined
    settle(key, read.subarray(at + end.length))
  }
  const give_up = () => settle(undefined, Buffer.alloc(0))
  const timer = setTimeout(give_up, headerMs).unref()
  socket.on('data', take).on('end', give_up).on('error', give_up).on('close', give_up)
}

export function createByteStreams(): ByteStreams {
  const expected = new Map<string, { project_id: string; arrive: (socket: Socket) => void }>()

  return {
    expect(project_id, signal) {
      const key = randomBytes(24).toString('hex')
      const { promise, resolve, reject } = Promise.withResolvers<Socket>()
      const onAbort = () => reject(signal.reason)
      const timer = setTimeout(
        () =>
          reject(
            new Fault(
              'timeout',
              `the supervisor of the container did not connect within ${connectMs / 1000} s`,
            ),
          ),
        connectMs,
      )
      expected.set(key, { project_id, arrive: resolve })
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
      const arrived = promise.finally(() => {
        clearTimeout(timer)
        expected.delete(key)
        signal.removeEventListener('abort', onAbort)
      })
      // The caller may learn of another failure first.
      arrived.catch(() => undefined)
      return { key, arrived }
    },
    accept(project_id, socket) {
      socket.on('error', () => socket.destroy())
      readKey(socket, (key) => {
        const found = key === undefined ? undefined : expected.get(key)
        // A key of another container is unknown here.
        if (!found || found.project_id !== project_id || socket.destroyed) return void socket.destroy()
        expected.delete(key!)
        found.arrive(socket)
      })
    },
  }
}
