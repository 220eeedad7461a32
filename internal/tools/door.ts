// The one door. Whatever the way in, a call is found, permitted, checked, run and written into the audit here, in
// this order: may this scope ever use the action; is the input right; which projects does it touch and does the
// scope see all of them (if not, they do not exist for it); does the caller hold what an admin granted to the projects
// that it writes to; then it runs, for as long as its caller's credential is valid. A change runs only after its intent
// is committed to the audit, and its row is settled with the outcome.
import { performance } from 'node:perf_hooks'
import type { Caller } from '../auth/caller.ts'
import { holdsEverything, mayAct } from '../auth/grant.ts'
import { type Lifetimes, whileValid } from '../auth/lifetimes.ts'
import { couldAllow, sees } from '../auth/scope.ts'
import { Fault, toFault, unknown } from '../fault.ts'
import type { Log } from '../log.ts'
import type { Intent } from '../manager/access/audit.ts'
import type { Managers } from '../manager/managers.ts'
import { lacksGrant } from '../manager/project/boundaries.ts'
import type { CallContext, Door, Outcome } from './call-types.ts'
import { checkText, describeProblems } from './check.ts'
import { createListing } from './listing.ts'
import type { Action, Tool } from './tool.ts'

type Found = { tool: Tool; name: string; action: Action; args: Record<string, unknown> }

const names = (record: Record<string, unknown>) => Object.keys(record).join(', ')

function find(tools: Record<string, Tool>, toolName: string, given: unknown): Found {
  if (!Object.hasOwn(tools, toolName))
    throw new Fault('not_found', `no tool "${toolName.slice(0, 80)}"`, { hint: `tools are ${names(tools)}` })
  const tool = tools[toolName]!
  const args = given ?? {}
  if (typeof args !== 'object' || Array.isArray(args))
    throw new Fault('invalid', 'arguments must be an object')
  checkText(args)
  if (!tool.unified)
    return { tool, name: toolName, action: tool.actions[toolName]!, args: args as Found['args'] }
  const { action: name, ...rest } = args as Found['args']
  if (typeof name !== 'string')
    throw new Fault('invalid', `${toolName} needs "action"`, { hint: `one of ${names(tool.actions)}` })
  if (!Object.hasOwn(tool.actions, name))
    throw new Fault('invalid', `${toolName} has no action "${name.slice(0, 80)}"`, {
      hint: `one of ${names(tool.actions)}`,
    })
  return { tool, name, action: tool.actions[name]!, args: rest }
}

/**
 * Every project that the input names, directly or through the id of something in it. An id in a project that the
 * scope does not see must sound exactly like an unknown one.
 */
async function permit(
  managers: Managers,
  context: CallContext,
  action: Action,
  input: Record<string, unknown>,
): Promise<string[]> {
  if (!action.needs.startsWith('project:')) return []
  const { scope } = context.caller
  const touched: string[] = []
  const look = (what: string, id: string, found: string | string[] | undefined) => {
    const projects = typeof found === 'string' ? [found] : (found ?? [])
    if (projects.length === 0 || !projects.every((project_id) => sees(scope, project_id)))
      throw unknown(what, id)
    touched.push(...projects)
  }
  for (const [field, { what, projectOf }] of Object.entries(managers.owners)) {
    const id = input[field]
    if (typeof id === 'string') look(what, id, await projectOf(id))
  }
  const targets = (Array.isArray(input.targets) ? input.targets : []) as { project_id: string }[]
  for (const { project_id } of targets) look('project', project_id, project_id)
  if (action.needs === 'project:write') await requireGrants(managers, context.caller, touched)
  return touched
}

/** Whatever writes to a project can reach into its container, where keys of the granted scope are. */
async function requireGrants(managers: Managers, caller: Caller, touched: string[]): Promise<void> {
  if (holdsEverything(caller)) return
  // What names no project is about the only one that a project's token has.
  const own = caller.scope.kind === 'project' ? [caller.scope.project_id] : []
  for (const project_id of new Set(touched.length > 0 ? touched : own)) {
    const grant = await managers.projects.grantOf(project_id)
    if (!mayAct(caller, project_id, grant)) throw lacksGrant(project_id, grant)
  }
}

const describe = (found: { tool: Tool; name: string }) =>
  found.tool.unified ? `${found.tool.name}.${found.name}` : found.tool.name

export function createDoor(options: {
  tools: Record<string, Tool>
  managers: Managers
  lifetimes: Lifetimes
  log: Log
}): Door {
  const { tools, managers, lifetimes, log } = options

  async function run(
    found: Found,
    context: CallContext,
    begin: (projects: string[]) => Promise<void>,
  ): Promise<object> {
    const { action, args } = found
    if (!couldAllow(context.caller.scope, action.needs))
      throw new Fault('forbidden', `${describe(found)} needs more than this token's scope`, {
        hint: `it needs ${action.needs}`,
      })
    const parsed = action.input.safeParse(args)
    if (!parsed.success) throw describeProblems(describe(found), action.input, parsed.error)
    const intent = begin(await permit(managers, context, action, parsed.data))
    if (!action.awaits_intent) await intent
    context.signal.throwIfAborted()
    return await action.run({ ...context, managers, intent }, parsed.data as never)
  }

  async function call(toolName: string, context: CallContext, args: unknown): Promise<Outcome> {
    const started = performance.now()
    let found: Found | undefined
    let project_id: string | null = null
    let intent: Intent | undefined
    let outcome: Outcome
    let result = 'ok'
    const at = new Date().toISOString()
    const described = () => ({
      at,
      caller_kind: context.caller.kind,
      caller_id: context.caller.id,
      token_id: context.caller.token_id,
      session_id: context.caller.session_id ?? null,
      via: context.via,
      tool: found?.tool.name ?? toolName.slice(0, 80),
      action: found?.name ?? '',
      project_id,
      request_id: context.request_id,
    })
    using valid = whileValid(lifetimes, context.caller, context.signal)
    const { signal } = valid
    try {
      found = find(tools, toolName, args)
      const { action } = found
      const running = run(found, { ...context, signal }, (touched) => {
        project_id = touched[0] ?? null
        // A call that has ended meanwhile is recorded already.
        signal.throwIfAborted()
        if (action.needs.endsWith(':read') || action.commits_audit) return Promise.resolve()
        intent = managers.audit.begin(described())
        // An action that awaits it itself may end before that.
        intent.committed.catch(() => undefined)
        return intent.committed
      })
      // Not every action watches the signal, and some answer what they have when it ends.
      const structured = await Promise.race([running, valid.ended])
      if (signal.reason instanceof Fault && signal.reason.kind === 'unauthenticated') throw signal.reason
      outcome = {
        structured: structured as Record<string, unknown>,
        text: JSON.stringify(structured),
        is_error: false,
      }
    } catch (thrown) {
      const fault =
        signal.aborted && !(thrown instanceof Fault)
          ? new Fault('timeout', 'the call was cancelled', { cause: thrown })
          : toFault(thrown)
      if (fault.kind === 'internal')
        log.error('call failed', {
          tool: toolName,
          request_id: context.request_id,
          id: fault.id,
          error: fault.cause ?? fault,
        })
      result = fault.kind
      outcome = {
        structured: { error: fault.shape() },
        text: fault.hint ? `${fault.message} (${fault.hint})` : fault.message,
        is_error: true,
      }
    }
    const milliseconds = performance.now() - started
    if (intent) intent.settle(result, milliseconds)
    else managers.audit.record({ ...described(), outcome: result, milliseconds })
    return outcome
  }

  return { listing: createListing(tools), call }
}
