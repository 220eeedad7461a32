// Sessions as MCP resources, so that a client of the 2026 era can subscribe to one: `oubliette://sessions/<id>` is the
// result of `session get`. Listing and reading pass the same door as every call.
import {
  type ListResourcesResult,
  ProtocolError,
  ProtocolErrorCode,
  type ReadResourceResult,
  type Server,
} from '@modelcontextprotocol/server'
import type { Door } from '../tools/door.ts'
import type { CallContext, Outcome } from '../tools/tool.ts'

const prefix = 'oubliette://sessions/'
export const sessionUri = (session_id: string) => `${prefix}${session_id}`

export const templates = {
  resourceTemplates: [
    {
      name: 'session',
      title: 'Session',
      uriTemplate: `${prefix}{session_id}`,
      mimeType: 'application/json',
      description:
        'State of a session, as `session get` returns it; an update is announced with every event.',
    },
  ],
}

const mostSubscriptions = 1000
const subscribed = new WeakMap<Server, Set<string>>()
/** In the eras with sessions: whether the client of this server object subscribed to the resource. */
export const isSubscribed = (server: Server, uri: string): boolean =>
  subscribed.get(server)?.has(uri) ?? false

export function subscribe(server: Server, uri: string): void {
  const uris = subscribed.get(server) ?? new Set()
  if (uris.size >= mostSubscriptions)
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `more than ${mostSubscriptions} subscriptions`)
  subscribed.set(server, uris.add(uri))
}
export const unsubscribe = (server: Server, uri: string): void => void subscribed.get(server)?.delete(uri)
export const subscriptionsOf = (server: Server): string[] => [...(subscribed.get(server) ?? [])]

type Session = { session_id: string; droid: string; status: string; project_id: string }

function answered(outcome: Outcome): Record<string, unknown> {
  if (!outcome.is_error) return outcome.structured
  const { error } = outcome.structured as { error: { kind: string; message: string } }
  const code = error.kind === 'internal' ? ProtocolErrorCode.InternalError : ProtocolErrorCode.InvalidParams
  throw new ProtocolError(code, error.message, outcome.structured)
}

export async function listSessions(
  door: Door,
  context: CallContext,
  cursor: string | undefined,
): Promise<ListResourcesResult> {
  const args = { action: 'list', ...(cursor === undefined ? {} : { cursor }) }
  const { sessions, next_cursor } = answered(await door.call('session', context, args)) as {
    sessions: Session[]
    next_cursor: string | null
  }
  const resources = sessions.map(({ session_id, droid, status, project_id }) => ({
    uri: sessionUri(session_id),
    name: session_id,
    mimeType: 'application/json',
    description: `${droid}, ${status}, of project ${project_id}`,
  }))
  return { resources, ...(next_cursor === null ? {} : { nextCursor: next_cursor }) }
}

export async function readSession(
  door: Door,
  context: CallContext,
  uri: string,
): Promise<ReadResourceResult> {
  if (!uri.startsWith(prefix))
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `no resource ${uri.slice(0, 200)}`, {
      uri,
    })
  const args = { action: 'get', session_id: uri.slice(prefix.length) }
  const session = answered(await door.call('session', context, args))
  return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify(session) }] }
}
