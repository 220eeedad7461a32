// The door: every call is found, checked, permitted, run and written into the audit here, whether it comes by HTTP, an
// event stream, a container's socket or a schedule. In this order: does the project of the droid disable the tool; may
// this scope ever use the action; is the input valid; which projects does it name or touch and does the scope see all of
// them (if not, they do not exist for it); does the caller hold what an admin granted to the projects that it writes to;
// then it runs, for as long as its caller's credential is valid. A change runs only after its intent is committed to the
// audit, and its row is settled with the outcome. Only this file builds an audit row.
import { performance } from 'node:perf_hooks'
import type { Caller } from '../auth/caller.ts'
import { holdsEverything, isInside, mayAct } from '../auth/grant.ts'
import { type Lifetimes, whileValid } from '../auth/lifetimes.ts'
import { couldAllow, type Scope, sees } from '../auth/scope.ts'
import { Fault, type Kind, toFault, unknown } from '../fault.ts'
import type { Log } from '../log.ts'
import type { AuditCall, Intent } from '../manager/access/audit.ts'
import type { Managers } from '../manager/managers.ts'
import { lacksGrant } from '../manager/project/boundaries.ts'
import { checkText, describeProblems } from './check-input.ts'
import { createDisabled } from './droid/disabled-tools.ts'
import { createListing } from './listing.ts'
import { withIds } from './references.ts'
import type {
  CallContext,
  InnerDoor,
  InternalAction,
  ListedTool,
  Outcome,
  RunContext,
  Runnable,
  Tool,
} from './tool.ts'
import { unflatten } from './tool-names.ts'

export interface Door {
  /** What this scope could ever use; the same array for the same kind of scope, so that it can be prepared once. */
  listing(scope: Scope): readonly ListedTool[]
  /** Never throws: a fault is an outcome. */
  call(tool: string, context: CallContext, args: unknown): Promise<Outcome>
  /** Throws a fault; the result is what the action returns. */
  run<Input, Result>(
    action: InternalAction<Input, Result>,
    context: CallContext,
    input: Input,
  ): Promise<Result>
}

/** `title`: how messages name it. */
type Found<Result> = {
  title: string
  tool: string
  name: string
  action: Runnable<Result>
  args: Record<string, unknown>
  /** Its name in metrics, which no caller chooses. */
  counted_as: string
}

/** What a call was and how it ended, in words that no caller chooses. */
export type MeasuredCall = { tool: string; action: string; outcome: 'ok' | Kind; seconds: number }

/** Of an action in the audit: a droid's name of a caller's tool is a caller's id and a name. */
const longestName = 200

const names = (record: Record<string, unknown>) => Object.keys(record).join(', ')

function find(tools: Record<string, Tool>, toolName: string, given: unknown): Found<object> {
  if (!Object.hasOwn(tools, toolName))
    throw new Fault('not_found', `no tool "${toolName.slice(0, 80)}"`, { hint: `tools are ${names(tools)}` })
  const tool = tools[toolName]!
  const args = given ?? {}
  if (typeof args !== 'object' || Array.isArray(args))
    throw new Fault('invalid', 'arguments must be an object')
  checkText(args)
  if (!tool.unified)
    return {
      title: toolName,
      tool: toolName,
      name: toolName,
      action: tool.actions[toolName]!,
      counted_as: toolName,
      args: args as Record<string, unknown>,
    }
  const { action: name, ...rest } = args as Record<string, unknown>
  if (typeof name !== 'string')
    throw new Fault('invalid', `${toolName} needs "action"`, { hint: `one of ${names(tool.actions)}` })
  if (!Object.hasOwn(tool.actions, name))
    throw new Fault('invalid', `${toolName} has no action "${name.slice(0, 80)}"`, {
      hint: `one of ${names(tool.actions)}`,
    })
  return {
    title: `${toolName}.${name}`,
    tool: toolName,
    name,
    action: tool.actions[name]!,
    counted_as: name,
    args: rest,
  }
}

/**
 * Every project that the input names, directly or through the id of something in it. An id in a project that the
 * scope does not see gets exactly the answer of an unknown one.
 */
async function permit(
  managers: Managers,
  { caller }: CallContext,
  action: Runnable,
  input: Record<string, unknown>,
): Promise<string[]> {
  if (!action.needs.startsWith('project:')) return []
  const touched: string[] = []
  const look = (what: string, id: string, found: string | string[] | null | undefined) => {
    if (found === null && caller.scope.kind === 'admin') return
    const projects = typeof found === 'string' ? [found] : (found ?? [])
    if (projects.length === 0 || !projects.every((project_id) => sees(caller.scope, project_id)))
      throw unknown(what, id)
    touched.push(...projects)
  }
  for (const [field, { what, projectOf }] of Object.entries(managers.owners)) {
    const id = input[field]
    if (typeof id === 'string') look(what, id, await projectOf(id))
  }
  const targets = (Array.isArray(input.targets) ? input.targets : []) as { project_id: string }[]
  for (const { project_id } of targets) look('project', project_id, project_id)
  if (action.needs === 'project:write') await requireGrants(managers, caller, touched)
  return touched
}

/** Whoever writes to a project can reach into its container, where keys of the granted scope are. */
async function requireGrants(managers: Managers, caller: Caller, touched: string[]): Promise<void> {
  if (holdsEverything(caller)) return
  // An input that names no project is about the only one that a project's token has.
  const own = caller.scope.kind === 'project' ? [caller.scope.project_id] : []
  for (const project_id of new Set(touched.length > 0 ? touched : own)) {
    // A session may act in its own project whatever is granted to it: no query for the calls of droids.
    if (isInside(caller, project_id)) continue
    const grant = await managers.projects.grantOf(project_id)
    if (!mayAct(caller, project_id, grant)) throw lacksGrant(project_id, grant)
  }
}

export function createDoor(options: {
  tools: Record<string, Tool>
  managers: Managers
  lifetimes: Lifetimes
  /** Called with every call that has ended. */
  measure?: ((call: MeasuredCall) => void) | undefined
  log: Log
}): Door {
  const { tools, managers, lifetimes, log } = options
  const listing = createListing(tools)

  async function runFound<Result>(
    { title, action, args }: Found<Result>,
    context: Omit<RunContext, 'managers' | 'intent'>,
    begin: (projects: string[]) => Promise<void>,
  ): Promise<Result> {
    if (!couldAllow(context.caller.scope, action.needs))
      throw new Fault('forbidden', `${title} needs more than this token's scope`, {
        hint: `it needs ${action.needs}`,
      })
    const parsed = action.input.safeParse(args)
    if (!parsed.success) throw describeProblems(title, action.input, parsed.error)
    const input = await withIds(managers.projectNames, context.caller.scope, parsed.data)
    const intent = begin(await permit(managers, context, action, input))
    if (!action.awaits_intent) await intent
    context.signal.throwIfAborted()
    return await action.run({ ...context, managers, intent }, input as never)
  }

  /** Names the call in the audit until `resolve` has found it. */
  type Asked = { tool: string; action: string }

  /** For actions that run others. One that was itself run by another gets no further: calls do not nest without end. */
  function innerDoor(context: CallContext, is_inner: boolean): InnerDoor {
    return {
      listing,
      async call(name, given) {
        if (is_inner) throw new Fault('invalid', 'run_tool cannot be run by run_tool')
        const [tool, args] = unflatten(tools, name, given)
        return await enter(context, { tool, action: '' }, () => find(tools, tool, args), true)
      },
    }
  }

  async function enter<Result>(
    context: CallContext,
    asked: Asked,
    resolve: () => Found<Result>,
    is_inner = false,
  ): Promise<Result> {
    const started = performance.now()
    const { caller } = context
    const row: AuditCall = {
      at: new Date().toISOString(),
      caller_kind: caller.kind,
      caller_id: caller.id,
      token_id: caller.token_id,
      session_id: caller.session_id ?? null,
      via: context.via,
      tool: asked.tool.slice(0, 80),
      action: asked.action.slice(0, longestName),
      project_id: null,
      request_id: context.request_id,
    }
    let intent: Intent | undefined
    let taken = false
    let outcome: MeasuredCall['outcome'] = 'ok'
    let counted = { tool: 'unknown', action: 'unknown' }
    using valid = whileValid(lifetimes, caller, context.signal)
    const { signal } = valid
    const takeAuditRow = () => {
      signal.throwIfAborted()
      taken = true
      return row
    }
    const audited: RunContext['audited'] = async (named, work) => {
      const began = performance.now()
      const inner = managers.audit.begin({
        ...row,
        at: new Date().toISOString(),
        tool: named.tool.slice(0, 80),
        action: named.action.slice(0, longestName),
      })
      inner.committed.catch(() => undefined)
      let ended = 'ok'
      try {
        return await work(inner.committed)
      } catch (thrown) {
        ended = signal.aborted && !(thrown instanceof Fault) ? 'timeout' : toFault(thrown).kind
        throw thrown
      } finally {
        inner.settle(ended, performance.now() - began)
      }
    }
    try {
      const found = resolve()
      const { action } = found
      row.tool = found.tool
      counted = { tool: found.tool, action: found.counted_as }
      row.action = found.name.slice(0, longestName)
      if (context.disabled_tools?.length) createDisabled(context.disabled_tools).refuse(found)
      const door = innerDoor({ ...context, signal }, is_inner)
      const running = runFound(found, { ...context, signal, door, takeAuditRow, audited }, (touched) => {
        row.project_id = touched[0] ?? null
        // A call that has ended meanwhile is recorded already.
        signal.throwIfAborted()
        if (action.needs.endsWith(':read') || action.commits_audit) return Promise.resolve()
        intent = managers.audit.begin(row)
        // An action that awaits it itself may end before that.
        intent.committed.catch(() => undefined)
        return intent.committed
      })
      // Not every action watches the signal, and some return what they have when it is aborted.
      const result = await Promise.race([running, valid.ended])
      if (signal.reason instanceof Fault && signal.reason.kind === 'unauthenticated') throw signal.reason
      return result
    } catch (thrown) {
      const fault =
        signal.aborted && !(thrown instanceof Fault)
          ? new Fault('timeout', 'the call was cancelled', { cause: thrown })
          : toFault(thrown)
      if (fault.kind === 'internal')
        log.error('call failed', {
          tool: asked.tool,
          request_id: context.request_id,
          id: fault.id,
          error: fault.cause ?? fault,
        })
      outcome = fault.kind
      throw fault
    } finally {
      const milliseconds = performance.now() - started
      options.measure?.({ ...counted, outcome, seconds: milliseconds / 1000 })
      if (intent) intent.settle(outcome, milliseconds)
      else if (!taken) managers.audit.record({ ...row, outcome, milliseconds })
    }
  }

  return {
    listing,
    async call(tool, context, args) {
      try {
        const structured = await enter(context, { tool, action: '' }, () => find(tools, tool, args))
        return {
          structured: structured as Record<string, unknown>,
          text: JSON.stringify(structured),
          is_error: false,
        }
      } catch (thrown) {
        const fault = toFault(thrown)
        return {
          structured: { error: fault.shape() },
          text: fault.hint ? `${fault.message} (${fault.hint})` : fault.message,
          is_error: true,
        }
      }
    },
    run(action, context, input) {
      const tool = action.tool(input)
      const name = action.action(input)
      return enter(context, { tool, action: name }, () => {
        const args = input as Record<string, unknown>
        for (const value of Object.values(args)) checkText(value)
        return { title: tool, tool, name, action, counted_as: 'internal', args }
      })
    },
  }
}
