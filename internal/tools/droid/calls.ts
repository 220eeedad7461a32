// The methods that a droid may call over the socket of its container. All calls pass the door, with the session as the caller
// and the scope that its spawner requested.
import { covers, parseScope, type Scope } from '../../auth/scope.ts'
import { Fault, unknown } from '../../fault.ts'
import { newRequestId } from '../../ids.ts'
import type { Managers } from '../../manager/managers.ts'
import type { Identity } from '../../manager/session/identity.ts'
import type { Call } from '../../protocol/peer.ts'
import type { DroidSide } from '../../relay/droid-side.ts'
import { tools } from '../declarations/index.ts'
import { callerToolCall } from '../declarations/internal.ts'
import type { Door } from '../door.ts'
import { withIds } from '../references.ts'
import type { CallContext, Outcome } from '../tool.ts'
import { unflatten } from '../tool-names.ts'
import { createDeduplicate, createRunningCalls } from './deduplicate.ts'
import { createDisabled } from './disabled-tools.ts'
import { createUpstreamTools } from './upstream-tools.ts'

const noScope = () =>
  new Fault('forbidden', 'this session has no api_scope and cannot use the tools of Oubliette', {
    hint: 'spawn the session with api_scope; it ends when the credential of the spawner expires',
  })

/** The door's outcome as the socket's result: a failed call is a JSON-RPC error. */
function resultOf(outcome: Outcome): Record<string, unknown> {
  if (!outcome.is_error) return outcome.structured
  const { kind, message, hint } = (
    outcome.structured as { error: { kind: 'invalid'; message: string; hint?: string } }
  ).error
  throw new Fault(kind, message, hint ? { hint } : {})
}

/** The client cancelled the call, as opposed to a lost connection. */
const wasCancelled = (reason: unknown) => reason instanceof Fault && reason.kind === 'conflict'

type Methods = DroidSide<Identity>['droid']
type How = Pick<Call, 'signal' | 'progress'>

export function createDroidCalls(door: () => Door, managers: () => Managers): Methods {
  const running = createRunningCalls(wasCancelled)
  const deduplicate = createDeduplicate({
    tools,
    begin: (session_id, call_id) => managers().droidCalls.begin(session_id, call_id),
    running,
  })

  const upstream = createUpstreamTools(managers)

  const contextOf = (identity: Identity, scope: Scope, { signal, progress }: How): CallContext => ({
    caller: identity.caller(scope),
    request_id: newRequestId(),
    via: 'socket',
    signal,
    progress,
  })

  const call = async (
    { session_id }: Identity,
    context: CallContext,
    tool: string,
    args: Record<string, unknown>,
    call_id?: string,
  ) => {
    const { signal } = context
    const outcome = await deduplicate({ session_id, call_id, signal }, tool, args, (given, until) =>
      door().call(tool, { ...context, signal: until }, given),
    )
    return resultOf(outcome)
  }
  /** Calls to its own children need no api_scope: limits apply, and the project is its own. */
  const own = (identity: Identity): Scope => ({
    kind: 'project',
    project_id: identity.project_id,
    read_only: false,
  })

  const asParent = (identity: Identity, args: Record<string, unknown>, how: How) =>
    call(identity, contextOf(identity, own(identity), how), 'session', args)

  /** Its descendants only: other sessions of the project need an api_scope. */
  async function ownChild(identity: Identity, session_id: unknown): Promise<void> {
    const family = await managers().sessions.family(identity.session_id)
    if (!family.includes(String(session_id))) throw unknown('session', String(session_id))
  }
  /** A child may have at most the scope of its parent; a parent without an api_scope has none to give. */
  async function ownScope(identity: Identity, given: unknown): Promise<{ api_scope?: string }> {
    if (given === undefined) return {}
    if (!identity.scope) throw noScope()
    const asked = { api_scope: String(given) }
    const { api_scope } = await withIds(managers().projectNames, identity.scope, asked)
    if (!covers(identity.scope, parseScope(api_scope)))
      throw new Fault('forbidden', `api_scope ${api_scope} exceeds the scope of the spawner`)
    return { api_scope }
  }

  return {
    oubliette_tools: async (identity) => ({
      tools: [
        ...(identity.scope
          ? createDisabled(identity.disabled_tools).without(door().listing(identity.scope))
          : []),
        ...(await upstream.list(identity)),
      ],
    }),
    oubliette_call_tool: async (identity, params, how) => {
      if (upstream.has(params.tool)) {
        const request = { session_id: identity.session_id, call_id: params.call_id, signal: how.signal }
        return await running(request, async (signal) => {
          const { disabled_tools } = identity
          const context = { ...contextOf(identity, own(identity), { ...how, signal }), disabled_tools }
          return await upstream.call(door(), identity, context, params)
        })
      }
      if (!identity.scope) throw noScope()
      const [tool, args] = unflatten(tools, params.tool, params.arguments)
      const context = contextOf(identity, identity.scope, how)
      const { disabled_tools } = identity
      return await call(identity, { ...context, disabled_tools }, tool, args, params.call_id)
    },
    caller_tools: async (identity) => ({
      tools: (await managers().callerTools.offered(identity.session_id))
        .filter(({ name }) => !createDisabled(identity.disabled_tools).hasCallers(name))
        .map(({ name, tool }) => ({
          name,
          description: tool.description,
          inputSchema: tool.inputSchema,
          ...(tool.annotations ? { annotations: tool.annotations } : {}),
        })),
    }),
    caller_tool: async (identity, call, how) => {
      const { project_id, disabled_tools } = identity
      const context = { ...contextOf(identity, own(identity), how), disabled_tools }
      return await door().run(callerToolCall, context, { project_id, ...call })
    },
    session_message: async (identity, { message, ...rest }, how) => {
      if (rest.session_id !== undefined) {
        await ownChild(identity, rest.session_id)
        return await asParent(identity, { action: 'message', message, ...rest }, how)
      }
      const scoped = await ownScope(identity, rest.api_scope)
      const { project_id, workspace_id } = identity
      const target = { project_id, workspace_id, new_session: true }
      const spawn = { action: 'spawn', prompt: message, ...target, ...rest, ...scoped }
      return await asParent(identity, spawn, how)
    },
    session_events: async (identity, params, how) => {
      await ownChild(identity, params.session_id)
      return await asParent(identity, { action: 'events', ...params }, how)
    },
  }
}
