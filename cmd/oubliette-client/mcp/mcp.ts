// The droid's MCP server: lists the tools of this session and forwards calls. One process per container serves all its
// sessions (`shared.ts`), and what a droid starts only connects its stdio to that process (`mcp-bridge.sh`). Where that is not
// possible, the server runs in the process that the droid started. It then ends when its stdin ends or its parent exits, so
// that a crashed agent leaves no process behind.
import { Server } from '@modelcontextprotocol/server'
import { type StdioServerHandle, StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio'
import { Fault, toFault } from '../../../internal/fault.ts'
import type { Progress } from '../../../internal/protocol/peer.ts'
import { version } from '../version.ts'
import { openLink } from './link.ts'
import { asFailure, createTools, type Tools } from './tools.ts'

/** Some agents cancel a call after a minute without progress. */
const keepAliveMs = 15_000
/** How often the parent process is checked. */
export const parentMs = 2000
/** Open calls of one droid; more are refused. */
const maxOpenCalls = 2048

type Calls = { open: number }

function makeServer(tools: Tools, calls: Calls): Server {
  const server = new Server(
    { name: 'oubliette', version },
    { capabilities: { tools: { listChanged: true } } },
  )
  server.setRequestHandler('tools/list', async () => ({ tools: (await tools.list()) as never }))
  server.setRequestHandler('tools/call', async (request, context) => {
    if (calls.open >= maxOpenCalls)
      return asFailure(
        new Fault('exhausted', `this session has ${calls.open} open calls`, {
          hint: 'wait until some of them have ended',
        }),
      ) as never
    const token = context.mcpReq._meta?.progressToken
    let step = 0
    const report = (update: Progress) => {
      if (token === undefined) return
      // The protocol requires progress to increase, whatever the caller reports.
      step = Math.max(update.progress, step + 0.001)
      void context.mcpReq
        .notify({
          method: 'notifications/progress',
          params: { ...update, progress: step, progressToken: token },
        })
        // The droid has disconnected; its signal aborts the call.
        .catch(() => {})
    }
    const alive = setInterval(() => report({ progress: step, message: 'waiting' }), keepAliveMs)
    calls.open++
    try {
      const { name, arguments: args = {} } = request.params
      return (await tools.call(name, args, { signal: context.mcpReq.signal, on_progress: report })) as never
    } catch (error) {
      if (context.mcpReq.signal.aborted) throw error
      return asFailure(toFault(error)) as never
    } finally {
      calls.open--
      clearInterval(alive)
    }
  })
  return server
}

async function parentGone(signal: AbortSignal): Promise<void> {
  const parent = process.ppid
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => process.ppid !== parent && resolve(), parentMs)
    signal.addEventListener('abort', () => resolve(), { once: true })
    process.stdin.once('end', resolve)
    process.stdin.once('close', resolve)
    process.stdout.once('error', () => resolve())
    timer.unref()
  })
}

/** `env` holds the session's key and the server's socket. The signal closes the connection to the server. */
export function serveSession(
  env: NodeJS.ProcessEnv,
  transport: StdioServerTransport,
  signal: AbortSignal,
): StdioServerHandle {
  const servers = new Set<Server>()
  const link = openLink(env, signal, () => {
    // Fails before initialization and after the close, where the notification is not needed.
    for (const server of servers) void server.sendToolListChanged().catch(() => {})
  })
  const tools = createTools(link, signal)
  const calls = { open: 0 }
  const newServer = () => {
    const server = makeServer(tools, calls)
    servers.add(server)
    server.onclose = () => servers.delete(server)
    return server
  }
  return serveStdio(newServer, { transport })
}

export async function serveMcp(env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<number> {
  const serving = serveSession(env, new StdioServerTransport(), signal)
  await parentGone(signal)
  await serving.close()
  return 0
}
