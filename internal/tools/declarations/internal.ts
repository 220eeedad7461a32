// What the server's own routes and socket methods ask of the door: event streams over HTTP, and a droid's calls of the tools
// of callers and of upstream servers. Not listed and not callable by name.
import { z } from 'zod'
import { Fault } from '../../fault.ts'
import { isProjectReference, patterns } from '../../ids.ts'
import { type IndexedEvent, shownEvent } from '../../manager/events/event-log.ts'
import { createDisabled } from '../droid/disabled-tools.ts'
import { internal } from '../tool.ts'
import { project_id } from './fields.ts'

type StreamedEvent = { id: string; event: string; data: string }
export type EventSource = (signal: AbortSignal) => AsyncIterable<StreamedEvent[]>

/** Of one write: what comes together is sent together, and a slow reader is not ahead by more than this. */
const mostChars = 64 * 1024

/** Many subscribers read the same events: each event is serialized once. */
const texts = new WeakMap<IndexedEvent, string>()
function textOf(event: IndexedEvent): string {
  const known = texts.get(event)
  if (known !== undefined) return known
  const text = JSON.stringify(shownEvent(event))
  texts.set(event, text)
  return text
}

function* portions<E extends IndexedEvent>(
  events: E[],
  idOf: (event: E) => number,
): Generator<StreamedEvent[]> {
  let portion: StreamedEvent[] = []
  let chars = 0
  for (const event of events) {
    const data = textOf(event)
    portion.push({ id: String(idOf(event)), event: event.type, data })
    chars += data.length
    if (chars < mostChars) continue
    yield portion
    portion = []
    chars = 0
  }
  if (portion.length > 0) yield portion
}

export const sessionStream = internal({
  tool: 'session',
  action: () => 'stream',
  needs: 'project:read',
  input: z.object({
    session_id: z.string().regex(patterns.session, 'the path holds no session id (gogol_…)'),
    /** -1 for the whole history. */
    since_index: z.int().min(-1),
  }),
  run: async ({ managers }, { session_id, since_index }): Promise<EventSource> =>
    async function* (signal) {
      for await (const events of managers.events.followSession(session_id, since_index, signal))
        yield* portions(events, ({ index }) => index)
    },
})

export const projectStream = internal({
  tool: 'project',
  action: () => 'stream',
  needs: 'project:read',
  input: z.object({
    project_id: z.string().refine(isProjectReference, 'the path holds no project id (a UUID) or name'),
    /** A position in the order of the whole log. */
    since_index: z.int().min(-1),
  }),
  run: async ({ managers }, { project_id, since_index }): Promise<EventSource> => {
    await managers.projects.require(project_id)
    return async function* (signal) {
      for await (const events of managers.events.followProject(project_id, since_index, signal))
        yield* portions(events, ({ position }) => position)
    }
  },
})

/** The droid cancelled the call, or its key has ended; a connection that was lost leaves the request open instead. */
const isFinal = (reason: unknown) =>
  reason instanceof Fault && (reason.kind === 'conflict' || reason.kind === 'unauthenticated')

export const callerToolCall = internal({
  tool: 'caller_tool',
  action: ({ tool }) => tool,
  needs: 'project:write',
  // `caller_calls` writes the audit row with the end of the request.
  commits_audit: true,
  input: z.object({
    project_id,
    tool: z.string(),
    arguments: z.record(z.string(), z.unknown()),
    call_id: z.string().optional(),
  }),
  run: async (
    { managers, caller, signal, progress, disabled_tools = [], takeAuditRow: audit },
    { project_id, ...call },
  ) => {
    const from = { session_id: caller.session_id!, project_id }
    // A tool may be called by its bare name: the whole one is known when it is found.
    const permit = (name: string) => createDisabled(disabled_tools).refuse({ tool: 'caller_tool', name })
    const how = { signal, progress, cancelled: isFinal, permit, audit }
    return await managers.callerRequests.ask(from, call.tool, call.arguments, call.call_id, how)
  },
})

const autonomy = z.enum(['off', 'low', 'medium', 'high'])

/** `tool` is the name that the droid sees. */
export const upstreamToolCall = internal({
  tool: ({ server }) => `mcp:${server}`,
  action: () => 'mcp_tool_call',
  needs: 'project:write',
  // The request leaves after the intent is committed; what is read before need not wait.
  awaits_intent: true,
  input: z.object({
    project_id,
    server: z.string(),
    tool: z.string(),
    arguments: z.record(z.string(), z.unknown()),
    call_id: z.string().optional(),
    autonomy,
  }),
  run: async (
    { managers, caller, signal, progress, intent, disabled_tools = [] },
    { project_id, tool, arguments: args, call_id, autonomy },
  ) => {
    const { offers } = await managers.gateway.catalogOf(project_id)
    const offer = offers.get(tool)
    if (!offer)
      throw new Fault('not_found', `no tool "${tool.slice(0, 80)}"`, {
        hint: 'list the tools again: a tool that changes is hidden until it is approved',
      })
    if (createDisabled(disabled_tools).hasUpstreams(tool))
      throw new Fault('forbidden', `the project disables ${tool} for its droids`)
    const from = { project_id, session_id: caller.session_id!, caller_id: caller.id, autonomy }
    const how = { signal, progress, cancelled: isFinal, intent }
    return await managers.gateway.call({ ...from, ...(call_id ? { call_id } : {}) }, offer, args, how)
  },
})

export const upstreamToolSearch = internal({
  tool: 'find_tools',
  action: () => 'find_tools',
  needs: 'project:read',
  input: z.object({
    project_id,
    query: z.string().max(500),
    server: z.string().max(200).optional(),
    limit: z.int().min(1).max(20).default(5),
  }),
  run: async ({ managers, disabled_tools = [] }, { project_id, query, server, limit }) => {
    const catalog = await managers.gateway.catalogOf(project_id)
    const isHidden = createDisabled(disabled_tools).hasUpstreams
    return await managers.gateway.search(catalog, query, { limit, server, isHidden })
  },
})
