// What a droid may call over its container's socket. Everything ends in the one door, with the session as the actor and
// the scope that its spawner asked for.
import { type Lifetimes, whileValid } from '../auth/lifetimes.ts'
import { covers, parseScope, type Scope } from '../auth/scope.ts'
import { Fault, toFault, unknown } from '../fault.ts'
import { newRequestId } from '../ids.ts'
import type { Managers } from '../manager/managers.ts'
import type { Identity } from '../manager/session/identity.ts'
import type { Call } from '../protocol/peer.ts'
import type { DroidSide } from '../relay/droid-side.ts'
import type { Door, Outcome } from './call-types.ts'
import { checkText } from './check.ts'
import { tools } from './declarations/index.ts'
import { createDeduplicate } from './deduplicate.ts'
import { createDisabled } from './disabled-tools.ts'

const noScope = () =>
  new Fault('forbidden', 'this session has no api_scope: it may not use the tools of Oubliette', {
    hint: 'the spawner can ask for one with api_scope; it ends when the credential of the spawner expires',
  })

/** `project` with an `action`, or `project_list`, which is the same; whether it may be used is the door's question. */
function unflatten(tool: string, args: Record<string, unknown>): [string, Record<string, unknown>] {
  if (Object.hasOwn(tools, tool)) return [tool, args]
  const owner = Object.values(tools).find(({ name, unified }) => unified && tool.startsWith(`${name}_`))
  return owner ? [owner.name, { ...args, action: tool.slice(owner.name.length + 1) }] : [tool, args]
}

/** The door's outcome as the socket's result: an error is an error there. */
function resultOf(outcome: Outcome): Record<string, unknown> {
  if (!outcome.is_error) return outcome.structured
  const { kind, message, hint } = (
    outcome.structured as { error: { kind: 'invalid'; message: string; hint?: string } }
  ).error
  throw new Fault(kind, message, hint ? { hint } : {})
}

const disabled = (tool: string) => new Fault('forbidden', `this project keeps ${tool} from its droids`)

/** The one who asked gave it up, as opposed to a connection that was lost. */
const wasCancelled = (reason: unknown) => reason instanceof Fault && reason.kind === 'conflict'

/** The key of the session has ended: nobody comes back for what it asked. */
const keyEnded = (reason: unknown) => reason instanceof Fault && reason.kind === 'unauthenticated'

type Methods = DroidSide<Identity>['droid']

/** Every call of a droid ends with the credential that its key comes from. */
function whileKeyValid(lifetimes: Lifetimes, methods: Methods): Methods {
  const guarded = Object.entries(methods).map(([name, method]) => {
    const run = method as (who: Identity, what: unknown, how: Call) => Promise<unknown>
    const held = async (identity: Identity, params: unknown, how: Call) => {
      using valid = whileValid(lifetimes, identity, how.signal)
      return await Promise.race([run(identity, params, { ...how, signal: valid.signal }), valid.ended])
    }
    return [name, held]
  })
  return Object.fromEntries(guarded) as Methods
}

export function createSocketDoor(door: () => Door, managers: () => Managers, lifetimes: Lifetimes): Methods {
  const once = createDeduplicate({
    tools,
    begin: (session_id, call_id) => managers().droidCalls.begin(session_id, call_id),
    wasCancelled,
  })
  const call = async (
    identity: Identity,
    scope: Scope,
    tool: string,
    args: Record<string, unknown>,
    { signal, progress }: Call,
    call_id?: string,
  ) => {
    const caller = identity.caller(scope)
    const { session_id } = identity
    const outcome = await once({ session_id, call_id, signal }, tool, args, (given, until) =>
      door().call(
        tool,
        { caller, request_id: newRequestId(), via: 'socket', signal: until, progress },
        given,
      ),
    )
    return resultOf(outcome)
  }
  /** Talking to its own children needs no api_scope: limits hold, and the project is its own. */
  const own = (identity: Identity): Scope => ({
    kind: 'project',
    project_id: identity.project_id,
    read_only: false,
  })

  /** A call of a caller's tool that was refused before anybody was asked; the others' rows are written with their end. */
  const note = ({ session_id, project_id, token_id }: Identity, tool: string, error: unknown) =>
    managers().audit.record({
      at: new Date().toISOString(),
      caller_kind: 'session',
      caller_id: session_id,
      token_id,
      session_id,
      via: 'socket',
      tool: 'caller_tool',
      action: tool.slice(0, 80),
      project_id,
      outcome: toFault(error).kind,
      milliseconds: 0,
      request_id: newRequestId(),
    })

  /** Its children and theirs; other sessions of the project are none of its business without an api_scope. */
  async function ownChild(identity: Identity, session_id: unknown): Promise<void> {
    const family = await managers().sessions.family(identity.session_id)
    if (!family.includes(String(session_id))) throw unknown('session', String(session_id))
  }
  /** A child may be given what its parent holds, and a parent without an api_scope holds nothing. */
  function ownScope(identity: Identity, api_scope: unknown): void {
    if (api_scope === undefined) return
    if (!identity.scope) throw noScope()
    if (!covers(identity.scope, parseScope(String(api_scope))))
      throw new Fault('forbidden', `api_scope ${api_scope} is more than the spawner's own scope`)
  }

  return whileKeyValid(lifetimes, {
    oubliette_tools: async (identity) => ({
      tools: identity.scope
        ? createDisabled(identity.disabled_tools).without(door().listing(identity.scope))
        : [],
    }),
    oubliette_call_tool: async (identity, params, how) => {
      if (!identity.scope) throw noScope()
      const [tool, args] = unflatten(params.tool, params.arguments)
      if (createDisabled(identity.disabled_tools).has(tool, String(args.action))) throw disabled(params.tool)
      return await call(identity, identity.scope, tool, args, how, params.call_id)
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
    caller_tool: async (identity, { tool, arguments: args, call_id }, { signal, progress }) => {
      const refused = (error: unknown) => note(identity, tool, error)
      try {
        checkText(args)
        if (createDisabled(identity.disabled_tools).hasCallers(tool)) throw disabled(tool)
      } catch (error) {
        refused(error)
        throw error
      }
      const cancelled = (reason: unknown) => wasCancelled(reason) || keyEnded(reason)
      const how = { signal, progress, cancelled, refused }
      return await managers().callerRequests.ask(identity, tool, args, call_id, how)
    },
    session_message: async (identity, { message, ...rest }, how) => {
      if (rest.session_id !== undefined) {
        await ownChild(identity, rest.session_id)
        return await call(identity, own(identity), 'session', { action: 'message', message, ...rest }, how)
      }
      ownScope(identity, rest.api_scope)
      const { project_id, workspace_id } = identity
      const spawn = { action: 'spawn', prompt: message, project_id, workspace_id, new_session: true, ...rest }
      return await call(identity, own(identity), 'session', spawn, how)
    },
    session_events: async (identity, params, how) => {
      await ownChild(identity, params.session_id)
      return await call(identity, own(identity), 'session', { action: 'events', ...params }, how)
    },
  })
}
