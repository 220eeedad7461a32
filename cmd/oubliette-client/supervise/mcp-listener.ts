// Where droids find the MCP server that all sessions of the container share. The supervisor only accepts connections and
// hands them, unread, to a process of their own: whatever a droid sends, it can hurt that process and not the supervisor.
// The process is started when the first droid asks for it, again when it died, and is told to end when nobody is left.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { Log } from '../../../internal/log.ts'

/** On their way to the process; what comes on top is refused, and its droid then runs a server of its own. */
const mostWaiting = 64
/** A process that ends as soon as it starts is not started again and again. */
const restartMs = 1000
const heapMib = 256

export type McpListener = { port: number; close(): void }

export async function listenForMcp(server_socket: string, log: Log): Promise<McpListener> {
  let child: ChildProcess | undefined
  let started_at = Number.NEGATIVE_INFINITY
  let handed = 0
  let waiting = 0

  function start(): ChildProcess | undefined {
    if (performance.now() - started_at < restartMs) return undefined
    started_at = performance.now()
    handed = 0
    const { PATH = '', HOME = '' } = process.env
    const started = fork(process.argv[1]!, ['mcp-shared'], {
      execArgv: [`--max-old-space-size=${heapMib}`, '--no-warnings'],
      // Nothing of a session: whoever ends a session's processes must not find this one.
      env: { PATH, HOME, OUBLIETTE_SOCKET: server_socket },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    const gone = (why: Record<string, unknown>) => {
      if (child !== started) return
      child = undefined
      log.warn('the MCP server of this container ended', why)
    }
    started.once('exit', (code, signal) => gone({ code, signal }))
    started.once('error', (error) => gone({ error }))
    // It has had no connection for a while. One that was handed over meanwhile keeps it.
    started.on('message', (idle) => {
      if (child !== started || (idle as { handed: number }).handed !== handed) return
      child = undefined
      if (started.connected) started.disconnect()
    })
    return started
  }

  function hand(socket: Socket): void {
    if (waiting >= mostWaiting) return void socket.destroy()
    child ??= start()
    if (!child) return void socket.destroy()
    handed++
    waiting++
    child.send('connection', socket, (error) => {
      waiting--
      if (error) socket.destroy()
    })
  }

  const server = createServer({ pauseOnConnect: true, noDelay: true }, (socket) => {
    socket.on('error', () => socket.destroy())
    hand(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      server.close()
      const last = child
      child = undefined
      if (last?.connected) last.disconnect()
    },
  }
}
