// The MCP server of all sessions of a container, in a process of its own. The supervisor passes connections to it
// (`supervise/mcp-listener.ts`). Each begins with one line that carries the key of its session; the server decides what the key
// permits. The number of connections and the bytes buffered for them are bounded.
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio'
import { parentMs, serveSession } from './mcp.ts'

const maxConnections = 256
const helloMs = 10_000
const helloBytes = 4096
/** Size of one request. */
const requestBytes = 8 * 1024 * 1024
/** Bytes of incomplete requests and unread answers, per connection and in total. */
const connectionBytes = 16 * 1024 * 1024
const totalBytes = 64 * 1024 * 1024
/** Requests are not read while the droid leaves this much unread. */
const unreadBytes = 1024 * 1024
const watchMs = 1000
const idleMs = 60_000

type Hello = { api_key: string; pid: number }
type Connection = { socket: Socket; unfinished: number; parent: string | undefined; pid: number }

/** The parent of a process; undefined if the process has ended. */
function parentOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const [state, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return state === 'Z' || state === 'X' ? undefined : ppid
  } catch {
    return undefined
  }
}

function parseHello(line: string): Hello | undefined {
  try {
    const { api_key, pid } = JSON.parse(line) as Partial<Hello>
    return typeof api_key === 'string' && Number.isSafeInteger(pid) ? { api_key, pid: pid! } : undefined
  } catch {
    return undefined
  }
}

/** Reads the first line and leaves the rest in the socket. Undefined if there is none. */
async function readHello(socket: Socket): Promise<Hello | undefined> {
  const deadline = setTimeout(() => socket.destroy(), helloMs)
  let wake = () => {}
  const onEvent = () => wake()
  const events = ['readable', 'end', 'close']
  for (const event of events) socket.on(event, onEvent)
  let got = Buffer.alloc(0)
  try {
    for (;;) {
      const chunk: Buffer | null = socket.read()
      if (chunk === null) {
        if (socket.destroyed || socket.readableEnded) return undefined
        await new Promise<void>((resolve) => {
          wake = resolve
        })
        continue
      }
      got = Buffer.concat([got, chunk])
      const end = got.indexOf(10)
      if (end < 0 && got.length <= helloBytes) continue
      if (end < 0) return undefined
      if (end + 1 < got.length) socket.unshift(got.subarray(end + 1))
      return parseHello(got.toString('utf8', 0, end))
    }
  } finally {
    clearTimeout(deadline)
    for (const event of events) socket.off(event, onEvent)
  }
}

/** Emits complete lines only: the SDK would scan an incomplete line again with every chunk. */
function readLines(socket: Socket, unfinished: (bytes: number) => void): Readable {
  const lines = new Readable({ read: () => undefined })
  let parts: Buffer[] = []
  let bytes = 0
  socket.on('data', (chunk: Buffer) => {
    const end = chunk.lastIndexOf(10) + 1
    if (end > 0) {
      lines.push(Buffer.concat([...parts, chunk.subarray(0, end)]))
      parts = []
      bytes = 0
    }
    if (end < chunk.length) parts.push(chunk.subarray(end))
    bytes += chunk.length - end
    unfinished(bytes)
  })
  socket.once('close', () => lines.destroy())
  return lines
}

class BoundedTransport extends StdioServerTransport {
  readonly #bound: () => void
  constructor(socket: Socket, unfinished: (bytes: number) => void, bound: () => void) {
    super(readLines(socket, unfinished), socket)
    this.#bound = bound
  }
  override async send(message: Parameters<StdioServerTransport['send']>[0]): Promise<void> {
    this.#bound()
    await super.send(message)
  }
}

export async function shareMcp(env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<void> {
  const connections = new Set<Connection>()
  let passed = 0
  let idle_since = performance.now()

  const heldOf = ({ socket, unfinished }: Connection) => unfinished + socket.writableLength
  function bound(connection: Connection): void {
    const held = heldOf(connection)
    if (held < unreadBytes) return
    if (held > connectionBytes || connection.unfinished > requestBytes)
      return void connection.socket.destroy()
    let all = 0
    let largest = connection
    for (const one of connections) {
      all += heldOf(one)
      if (heldOf(one) > heldOf(largest)) largest = one
    }
    if (all > totalBytes) largest.socket.destroy()
  }

  async function serve(socket: Socket): Promise<void> {
    const connection: Connection = { socket, unfinished: 0, parent: undefined, pid: 0 }
    connections.add(connection)
    const stop = new AbortController()
    socket.on('error', () => socket.destroy())
    const hello = await readHello(socket)
    const parent = hello && parentOf(hello.pid)
    socket.once('close', () => {
      stop.abort()
      connections.delete(connection)
      idle_since = performance.now()
    })
    if (!hello || parent === undefined || socket.destroyed) {
      connections.delete(connection)
      return void socket.destroy()
    }
    Object.assign(connection, { parent, pid: hello.pid })
    const unfinished = (bytes: number) => {
      connection.unfinished = bytes
      bound(connection)
      if (socket.writableLength < unreadBytes) return
      socket.pause()
      socket.once('drain', () => socket.resume())
    }
    socket.write('ok\n')
    const own = { OUBLIETTE_API_KEY: hello.api_key, OUBLIETTE_SOCKET: env.OUBLIETTE_SOCKET }
    serveSession(own, new BoundedTransport(socket, unfinished, () => bound(connection)), stop.signal)
  }

  process.on('message', (_message, socket) => {
    if (!socket) return
    passed++
    const connection = socket as Socket
    if (connections.size >= maxConnections) return void connection.destroy()
    serve(connection).catch(() => connection.destroy())
  })

  // A killed bridge leaves processes that keep its connection open.
  const watch = setInterval(
    () => {
      for (const connection of connections) {
        bound(connection)
        if (connection.pid && parentOf(connection.pid) !== connection.parent) connection.socket.destroy()
      }
      if (connections.size > 0) idle_since = performance.now()
      if (performance.now() - idle_since > idleMs) process.send?.({ passed })
    },
    Math.min(watchMs, parentMs),
  )
  await new Promise<void>((resolve) => {
    process.once('disconnect', resolve)
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
  clearInterval(watch)
}
