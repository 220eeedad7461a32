// A server object of the SDK with our handlers. It is the low-level `Server` because the door decides what is listed and how
// input is validated. A new one is created for each session, and for each request of the 2026 era.
import {
  type CallToolRequest,
  type CallToolResult,
  type jsonSchemaValidator,
  type ListToolsResult,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerCapabilities,
  type ServerContext,
} from '@modelcontextprotocol/server'
import type { Caller } from '../auth/caller.ts'
import { Fault, toFault } from '../fault.ts'
import type { Log } from '../log.ts'
import type { Door } from '../tools/door.ts'
import type { CallContext, ListedTool, Outcome } from '../tools/tool.ts'
import type { Notify } from './notify.ts'
import { listSessions, readSession, subscribe, subscriptionsOf, templates, unsubscribe } from './resources.ts'

/** The caller, checked for this request, and the id under which the request is logged and audited. */
export type Asked = { caller: Caller; request_id: string }

type OwnHandlers = {
  list(context: ServerContext): ListToolsResult
  call(params: CallToolRequest['params'], context: ServerContext): Promise<CallToolResult>
}
export type Fixtures = {
  capabilities: ServerCapabilities
  /** May replace handlers; `own` are the handlers of the product. */
  install(server: Server, own: OwnHandlers, notify: Notify): void
}

type Parts = {
  door: Door
  server_info: { name: string; version: string; title?: string }
  instructions: string
  log: Log
  notify: Notify
  validator: jsonSchemaValidator
  fixtures?: Fixtures
}
export type Watcher = {
  /** Called for each call: +1 when it starts, -1 when it ends. */
  running(change: 1 | -1): void
  /** The subscriptions of the client changed; the response is sent after this resolves. */
  subscribed(uris: string[]): Promise<void>
}
export type NewServer = (watcher?: Watcher) => Server

const everything = { kind: 'admin', read_only: false } as const

/** The SDK passes data of a request to its handler only as `AuthInfo`. */
export const toAuthInfo = (asked: Asked) => ({
  token: '',
  clientId: asked.caller.id,
  scopes: [],
  extra: asked,
})

function askedOf(context: ServerContext): Asked {
  const asked = context.http?.authInfo?.extra
  if (!asked) throw new Fault('internal', 'a request reached its handler without a caller')
  return asked as Asked
}

export function createServerFactory(parts: Parts): NewServer {
  const { door, log, fixtures } = parts
  const options = {
    capabilities: fixtures?.capabilities ?? {
      tools: { listChanged: true },
      resources: { subscribe: true },
      logging: {},
    },
    instructions: parts.instructions,
    jsonSchemaValidator: parts.validator,
    // The list depends on the token, so a shared cache must not store it.
    cacheHints: { 'tools/list': { ttlMs: 60_000, cacheScope: 'private' as const } },
  }
  const list: OwnHandlers['list'] = (context) => ({
    tools: door.listing(askedOf(context).caller.scope) as ListedTool[] as ListToolsResult['tools'],
  })

  async function call(params: CallToolRequest['params'], context: ServerContext): Promise<CallToolResult> {
    if (!door.listing(everything).some((tool) => tool.name === params.name)) {
      const fault = new Fault('not_found', `no tool "${params.name.slice(0, 80)}"`)
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${params.name.slice(0, 80)}`, {
        error: fault.shape(),
      })
    }
    const progress = reporter(context, log)
    const outcome = await door
      .call(
        params.name,
        { ...askedOf(context), via: 'http', signal: context.mcpReq.signal, progress: progress.report },
        params.arguments ?? {},
      )
      .catch((thrown: unknown) => broken(thrown, log))
    progress.stop()
    return {
      content: [{ type: 'text', text: outcome.text }],
      structuredContent: outcome.structured,
      isError: outcome.is_error,
    }
  }

  function installSessions(server: Server, watcher: Watcher | undefined): void {
    const asking = (context: ServerContext): CallContext => ({
      ...askedOf(context),
      via: 'http',
      signal: context.mcpReq.signal,
      progress() {},
    })
    server.setRequestHandler('resources/list', ({ params }, context) =>
      listSessions(door, asking(context), params?.cursor),
    )
    server.setRequestHandler('resources/templates/list', () => templates)
    server.setRequestHandler('resources/read', ({ params }, context) =>
      readSession(door, asking(context), params.uri),
    )
    server.setRequestHandler('resources/subscribe', async ({ params }, context) => {
      await readSession(door, asking(context), params.uri)
      subscribe(server, params.uri)
      await watcher?.subscribed(subscriptionsOf(server))
      return {}
    })
    server.setRequestHandler('resources/unsubscribe', async ({ params }) => {
      unsubscribe(server, params.uri)
      await watcher?.subscribed(subscriptionsOf(server))
      return {}
    })
  }

  return (watcher) => {
    const server = new Server(parts.server_info, options)
    server.onerror = (error) => log.debug('mcp', { error: error.message })
    server.setRequestHandler('tools/list', (_request, context) => list(context))
    server.setRequestHandler('tools/call', async (request, context) => {
      watcher?.running(1)
      try {
        return await call(request.params, context)
      } finally {
        watcher?.running(-1)
      }
    })
    if (fixtures) fixtures.install(server, { list, call }, parts.notify)
    else installSessions(server, watcher)
    return server
  }
}

/** Progress after the end or the cancellation of a call is dropped. */
function reporter(context: ServerContext, log: Log): { report: CallContext['progress']; stop(): void } {
  const token = context.mcpReq._meta?.progressToken
  if (token === undefined) return { report() {}, stop() {} }
  let over = false
  return {
    report(update) {
      if (over || context.mcpReq.signal.aborted) return
      context.mcpReq
        .notify({ method: 'notifications/progress', params: { progressToken: token, ...update } })
        .catch((error: unknown) => log.debug('failed to deliver progress', { error }))
    },
    stop() {
      over = true
    },
  }
}

/** The door promises not to throw. If it does, that is a bug, and its text must not reach the caller. */
export function broken(thrown: unknown, log: Log): Outcome {
  const fault = toFault(thrown)
  log.error('failed to return the outcome of a call', { id: fault.id, error: thrown })
  return { structured: { error: fault.shape() }, text: `${fault.message} (${fault.id})`, is_error: true }
}
