// MCP over HTTP: takes one authenticated request and answers it in the protocol era that it speaks. 2026-07-28 is
// stateless (`stateless/`), 2025-11-25 and older have sessions (`sessions/`); both hand `tools/list` and
// `tools/call` to the one door. Who is calling comes with each request and is never remembered from an earlier one.
// Checking the credential, Host, Origin and the size of the body is left to `internal/http`.
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/server/validators/ajv'
import type { Lifetimes } from '../auth/lifetimes.ts'
import type { OpenStreams } from '../auth/open-streams.ts'
import { jsonProblem } from '../event-loop/json-bounds.ts'
import type { Log } from '../log.ts'
import type { McpSessionRows } from '../store/rows/mcp-sessions.ts'
import type { Door } from '../tools/door.ts'
import { createEventBus } from './bus.ts'
import { rpcError } from './error.ts'
import type { Notify } from './notify.ts'
import { type Asked, createServerFactory, type Fixtures } from './server.ts'
import { createSessions, type SessionLimits } from './sessions/sessions.ts'
import { createModern, isModern } from './stateless/serve.ts'
import { createWatchedStreams } from './streams.ts'

export type McpOptions = {
  door: Door
  server_info: { name: string; version: string; title?: string }
  instructions: string
  log: Log
  lifetimes: Lifetimes
  streams: OpenStreams
  /** The sessions of the older eras, which outlive the process. */
  rows: McpSessionRows
  limits?: Partial<SessionLimits>
  /** For the conformance suite only: tools, prompts and resources that the product does not have. */
  fixtures?: Fixtures
}

export interface Mcp {
  /** Loads the sessions of an earlier process. Must be called before anything is published or fetched. */
  load(): Promise<void>
  /** `body` is the request body, already bounded in size; undefined for a request without one. */
  fetch(request: Request, asked: Asked, body: Uint8Array | undefined): Promise<Response>
  notify: Notify
  /** Ends all long-lived streams, those of other rooms too; running calls continue. */
  endStreams(): Promise<void>
  /** Ends everything; running calls are cancelled. */
  close(): Promise<void>
}

export function createMcp(options: McpOptions): Mcp {
  const { log, lifetimes } = options
  const bus = createEventBus(log)
  const streams = createWatchedStreams(options.streams, log)
  const notify: Notify = {
    toolsChanged() {
      bus.publish({ kind: 'tools_list_changed' })
      sessions.toolsChanged()
    },
    publish(event, to) {
      bus.publish(event, to)
      if (event.kind === 'resource_updated') sessions.resourceUpdated(event.uri, to ?? (() => true))
    },
    message: (message, to) => sessions.message(message, to),
  }
  const newServer = createServerFactory({
    ...options,
    notify,
    // Shared: a server would create its own, which is most of the cost of a new server.
    validator: new AjvJsonSchemaValidator(),
  })
  const modern = createModern({ newServer, bus, streams, log })
  const { rows, limits = {} } = options
  const sessions = createSessions({ newServer, streams, lifetimes, rows, log, limits })

  return {
    load: sessions.load,
    notify,
    async fetch(request, asked, bytes) {
      if (request.method !== 'POST') return sessions.fetch(request, asked, undefined)
      if (!isJson(request.headers.get('content-type')))
        return rpcError(415, -32000, 'Content-Type must be application/json')
      const body = parseBody(bytes)
      if (!body.ok) return rpcError(400, -32700, `Parse error: ${body.problem}`)
      return (await isModern(request, body.value))
        ? modern.fetch(request, asked, body.value)
        : sessions.fetch(request, asked, body.value)
    },
    async endStreams() {
      await modern.endSubscriptions()
      options.streams.endAll()
    },
    async close() {
      await modern.close()
      await sessions.close()
      options.streams.endAll()
    },
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true })

type Parsed = { ok: true; value: unknown } | { ok: false; problem: string }

export function isJson(content_type: string | null): boolean {
  return content_type?.split(';', 1)[0]?.trim().toLowerCase() === 'application/json'
}

/**
 * Depth and number of values are bounded before the body is parsed: later code may walk a value by recursion, and the
 * cost of doing so is known.
 */
export function parseBody(bytes: Uint8Array | undefined): Parsed {
  if (!bytes?.length) return { ok: false, problem: 'the body is empty' }
  try {
    const text = decoder.decode(bytes)
    const problem = jsonProblem(text)
    if (problem) return { ok: false, problem: `the body ${problem}` }
    return { ok: true, value: JSON.parse(text) }
  } catch {
    return { ok: false, problem: 'the body is not valid JSON in UTF-8' }
  }
}
