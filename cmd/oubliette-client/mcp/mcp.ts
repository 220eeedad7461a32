// The droid's MCP server: one list of what this session may use, calls passed on as they come. One process of a container
// serves all its sessions (`shared.ts`), and what a droid starts only joins its stdio with that one (`mcp-bridge.sh`). Where
// that is not possible the server runs in the process that the droid started. It then ends when its stdin does or its
// parent is gone, so that none is left behind by an agent that died.
import { Server } from '@modelcontextprotocol/server'
import { type StdioServerHandle, StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio'
import { Fault, toFault } from '../../../internal/fault.ts'
import type { Progress } from '../../../internal/protocol/peer.ts'
import { version } from '../version.ts'
import { openLink } from './link.ts'
import { asFailure, createTools, type Tools } from './tools.ts'

/** Some agents give a call up after a minute without a sign of life. */
const aliveMs = 15_000
export const parentMs = 2000
/** Of one droid; more are refused. */
const callsAtOnce = 2048

type Calls = { open: number }

function makeServer(tools: Tools, calls: Calls): Server {
  const server = new Server(
    { name: 'oubliette', version },
    { capabilities: { tools: { listChanged: true } } },
  )
  server.setRequestHandler('tools/list', async () => ({ tools: (await tools.list()) as never }))
  server.setRequestHandler('tools/call', async (request, context) => {
    if (calls.open >= callsAtOnce)
      return asFailure(
        new Fault('exhausted', `this session has ${calls.open} calls under way`, {
          hint: 'wait for some of them',
        }),
      ) as never
    const token = context.mcpReq._meta?.progressToken
    let step = 0
    const tell = (update: Progress) => {
      if (token === undefined) return
      // Ours only ever grows, whatever the other side counts: that is what the protocol asks for.
      step = Math.max(update.progress, step + 0.001)
      void context.mcpReq
        .notify({
          method: 'notifications/progress',
          params: { ...update, progress: step, progressToken: token },
        })
        // The one who asked is gone; the call is aborted by its own signal.
        .catch(() => {})
    }
    const alive = setInterval(() => tell({ progress: step, message: 'waiting' }), aliveMs)
    calls.open++
    try {
      const { name, arguments: args = {} } = request.params
      return (await tools.call(name, args, { signal: context.mcpReq.signal, on_progress: tell })) as never
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

/** `env` has the key of the session and the server's socket. The connection to the server ends with the signal. */
export function serveSession(
  env: NodeJS.ProcessEnv,
  transport: StdioServerTransport,
  signal: AbortSignal,
): StdioServerHandle {
  const servers = new Set<Server>()
  const link = openLink(env, signal, () => {
    // Nobody listens yet, or not any more: then nobody misses it.
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
