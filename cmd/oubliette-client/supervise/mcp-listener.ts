// Listens for droids that use the MCP server which all sessions of the container share. The supervisor only accepts connections
// and passes them, unread, to a separate process: whatever a droid sends can harm that process but not the supervisor. The
// process is started for the first connection, restarted after a crash, and ended when it has no connections.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { Log } from '../../../internal/log.ts'

/** Connections being passed to the process. More are refused; their droids then run an MCP server of their own. */
const maxPending = 64
/** Minimum time between two starts, for a process that crashes at startup. */
const restartMs = 1000
const heapMib = 256

export type McpListener = { port: number; close(): void }

export async function listenForMcp(server_socket: string, log: Log): Promise<McpListener> {
  let child: ChildProcess | undefined
  let started_at = Number.NEGATIVE_INFINITY
  let passed = 0
  let pending = 0

  function start(): ChildProcess | undefined {
    if (performance.now() - started_at < restartMs) return undefined
    started_at = performance.now()
    passed = 0
    const { PATH = '', HOME = '' } = process.env
    const started = fork(process.argv[1]!, ['mcp-shared'], {
      execArgv: [`--max-old-space-size=${heapMib}`, '--no-warnings'],
      // No variables of a session: ending a session's processes must not find this one.
      env: { PATH, HOME, OUBLIETTE_SOCKET: server_socket },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    const gone = (why: Record<string, unknown>) => {
      if (child !== started) return
      child = undefined
      log.warn('the shared MCP server exited', why)
    }
    started.once('exit', (code, signal) => gone({ code, signal }))
    started.once('error', (error) => gone({ error }))
    // It has been idle for a while, unless a connection was passed to it in the meantime.
    started.on('message', (idle) => {
      if (child !== started || (idle as { passed: number }).passed !== passed) return
      child = undefined
      if (started.connected) started.disconnect()
    })
    return started
  }

  function passOn(socket: Socket): void {
    if (pending >= maxPending) return void socket.destroy()
    child ??= start()
    if (!child) return void socket.destroy()
    passed++
    pending++
    child.send('connection', socket, (error) => {
      pending--
      if (error) socket.destroy()
    })
  }

  const server = createServer({ pauseOnConnect: true, noDelay: true }, (socket) => {
    socket.on('error', () => socket.destroy())
    passOn(socket)
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
